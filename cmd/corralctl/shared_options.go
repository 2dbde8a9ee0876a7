package main

// sharedOptions has, for each verb, those options of every verb that have an effect on it, with
// their meaning for this verb; "" stands for the general meaning. A verb that is missing here
// accepts all of them. --help and --host are for all verbs but those that do not access sessions.
var sharedOptions = map[string]map[string]string{
	"list":      {"json": "", "no-legend": "", "plain": "", "no-pager": "", "full": "", "all": "archived sessions too"},
	"top":       {"plain": "", "all": "archived sessions too"},
	"run":       {"json": "", "no-block": "", "quiet": "", "timeout": ""},
	"attach":    {"plain": ""},
	"open":      {"quiet": ""},
	"send":      {},
	"send-keys": {"full": "the same as --literal"},
	"approve":   {},
	"deny":      {},
	"peek":      {"json": "", "no-legend": "", "all": "every session that runs"},
	"logs":      {"json": "", "no-legend": "", "no-pager": "", "all": "every session; with --grep, archived ones too"},
	"diff":      {"no-legend": "", "no-pager": "", "plain": ""},
	"status":    {"json": "", "no-pager": "", "plain": "", "full": "do not shorten lines", "all": "every session"},
	"why":       {"json": "", "no-legend": "", "plain": "", "no-pager": "", "all": "every session"},
	"show":      {"json": "", "no-pager": "", "all": "every session"},
	"wait": {"json": "", "quiet": "", "timeout": "give up after this TIME and exit with 124",
		"all": "every session"},
	"notify":  {},
	"monitor": {"json": "", "quiet": "", "plain": ""},
	"start":   {"quiet": "", "no-block": "do not wait until they run", "all": "every session that has ended"},
	"stop": {"quiet": "", "no-block": "do not wait until they have ended",
		"timeout": "send SIGKILL after this TIME; 10s otherwise", "all": "every session"},
	"restart":      {"quiet": "", "no-block": "do not wait until they run", "all": "every session that runs"},
	"resume":       {"quiet": "", "no-block": "do not wait until they run", "all": "every suspended session"},
	"continue":     {"quiet": "", "all": "every session whose agent has reached a limit"},
	"suspend":      {"quiet": "", "no-block": "do not wait until they have ended", "all": "every session that runs"},
	"freeze":       {"quiet": "", "all": "every session that runs"},
	"thaw":         {"quiet": "", "all": "every session that runs"},
	"kill":         {"quiet": "", "all": "every session that runs"},
	"archive":      {"quiet": "", "all": "every session that has ended"},
	"rm":           {"quiet": "", "no-block": "do not wait until they are removed", "all": "every session"},
	"clean":        {"json": "", "quiet": ""},
	"enable":       {"quiet": "", "all": "every session"},
	"disable":      {"quiet": "", "all": "every session"},
	"set-property": {"quiet": ""},
	"describe":     {"quiet": ""},
	"label":        {"json": ""},
	"ack":          {"quiet": "", "all": "every session"},
	"is-active":    {"json": "", "quiet": "print nothing", "all": "every session"},
	"is-failed":    {"json": "", "quiet": "print nothing", "all": "every session"},
	"is-waiting":   {"json": "", "quiet": "print nothing", "all": "every session"},
	"report":       {},
	"mcp":          {},
	"agents":       {"json": "", "no-legend": "", "plain": "", "no-pager": ""},
	"cat":          {"no-pager": ""},
	"edit":         {"quiet": "", "full": "edit the whole file instead of a drop-in, or make a new agent"},
	"trust":        {"json": "", "no-legend": "", "plain": "", "quiet": ""},
	"linger":       {"json": "", "quiet": ""},
	"doctor":       {"json": "", "no-legend": "", "plain": "", "quiet": "print faults only"},
	"reload":       {},
	"version":      {"json": ""},
	"completion":   {},
	"help":         {},
}

// sharedMeaning returns the meaning of a shared option for a verb, "" for the general one, and
// whether it has an effect on that verb.
func sharedMeaning(verb, option string) (meaning string, used bool) {
	if option == "help" || option == "host" && verb != "completion" && verb != "help" {
		return "", true
	}
	meanings, known := sharedOptions[verb]
	if !known {
		return "", option != "version"
	}
	meaning, used = meanings[option]
	return meaning, used
}
