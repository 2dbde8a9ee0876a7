package notify

import "slices"

// WindowCommand returns the command of a terminal window in which a verb of corralctl runs, such as
// "attach ID". corralctl is its path, with its options.
func WindowCommand(corralctl []string, verb ...string) []string {
	command := slices.Concat(corralctl, verb)
	if verb[0] == "logs" {
		command = append([]string{"/bin/sh", "-c", waitForEnter, verb[len(verb)-1]}, command...)
	}
	return command
}

// waitForEnter sets the window's title, runs its arguments, and waits for Enter: the window would
// close with its command, and a log that fits on the screen is printed at once.
const waitForEnter = `printf '\033]2;%s: log\007' "$0"; "$@"; ` +
	`printf '\nPress Enter to close this window. '; read -r _`
