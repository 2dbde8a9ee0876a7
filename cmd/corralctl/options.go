package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// optionError describes an error of an option, as it was written. The verb is "" for options before
// the verb.
func optionError(verb string, options *pflag.FlagSet, err error) error {
	f := &failure{code: exitUsage, message: err.Error(), hint: strings.TrimSpace("corralctl help " + verb)}
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var value *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		f.message = fmt.Sprintf("unknown option %q", "-"+unknown.GetSpecifiedName())
		if long := longOption(unknown.GetSpecifiedName(), options); long != "" {
			f.hint = strings.Join(strings.Fields("corralctl "+verb+" --"+long), " ")
		}
	case errors.As(err, &unknown):
		f.message = fmt.Sprintf("unknown option %q", "--"+unknown.GetSpecifiedName())
		if near := nearestOption(unknown.GetSpecifiedName(), options); near != "" {
			f.hint = strings.Join(strings.Fields("corralctl "+verb+" --"+near), " ")
		}
	case errors.As(err, &bare):
		what, _ := pflag.UnquoteUsage(bare.GetFlag())
		f.message = fmt.Sprintf("--%s needs a %s", bare.GetFlag().Name, what)
	case errors.As(err, &value):
		f.message = fmt.Sprintf("invalid value %q for --%s: %s", value.GetValue(), value.GetFlag().Name, expected(value))
	}
	return f
}

// expected describes what values an option accepts.
func expected(wrong *pflag.InvalidValueError) string {
	switch kind := wrong.GetFlag().Value.Type(); {
	case kind == "bool":
		return "expected true or false"
	case strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint"):
		return "expected a number"
	}
	if reason := wrong.Unwrap(); reason != nil {
		return reason.Error()
	}
	return "see corralctl help options"
}

// longOption returns the only long option that begins with a letter, "" if there is none or more
// than one.
func longOption(letter string, options *pflag.FlagSet) string {
	var found []string
	options.VisitAll(func(option *pflag.Flag) {
		if strings.HasPrefix(option.Name, letter) && option.Shorthand == "" && !option.Hidden {
			found = append(found, option.Name)
		}
	})
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// nearestOption returns the option that was probably meant: it begins with name or is spelled like
// it.
func nearestOption(name string, options *pflag.FlagSet) string {
	var begins string
	var names []string
	options.VisitAll(func(option *pflag.Flag) {
		if option.Hidden {
			return
		}
		names = append(names, option.Name)
		if begins == "" && len(name) >= 3 && strings.HasPrefix(option.Name, name) {
			begins = option.Name
		}
	})
	return cmp.Or(begins, nearestWord(name, names))
}
