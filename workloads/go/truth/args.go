package truth

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Option is a number with its limits, or a text. The variables hold the defaults.
type Option struct {
	Name, Help string
	Number     *uint64
	Min, Max   uint64
	Text       *string
}

// Name is the program's own.
func Name() string { return filepath.Base(os.Args[0]) }

func refuse(object, why string) {
	_, _ = os.Stderr.WriteString(Name() + ": " + object + ": " + why + "; see --help\n") // nobody is left to tell
	os.Exit(2)
}

func help(options []Option) {
	out := "usage: " + Name() + " [--NAME VALUE]...\n"
	for _, o := range options {
		out += "  --" + (o.Name + "              ")[:14] + " " + o.Help
		if o.Number != nil {
			out += " (" + strconv.FormatUint(o.Min, 10) + " to " + strconv.FormatUint(o.Max, 10) + ", default " +
				strconv.FormatUint(*o.Number, 10) + ")"
		}
		out += "\n"
	}
	_, _ = os.Stdout.WriteString(out) // what cannot be read was not asked for
	os.Exit(0)
}

func (o *Option) set(value string) {
	if o.Text != nil {
		if value == "" {
			refuse(o.Name, "empty value")
		}
		*o.Text = value
		return
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		refuse(o.Name, "not an unsigned number")
	}
	if n < o.Min || n > o.Max {
		refuse(o.Name, "out of range")
	}
	*o.Number = n
}

// Parse reads --name VALUE and --name=VALUE, or exits: 0 after --help, 2 on anything wrong.
func Parse(options []Option) {
	for i := 1; i < len(os.Args); i++ {
		arg := os.Args[i]
		if arg == "--help" {
			help(options)
		}
		if !strings.HasPrefix(arg, "--") {
			refuse(arg, "not an option")
		}
		name, value, has := strings.Cut(arg[2:], "=")
		var found *Option
		for k := range options {
			if options[k].Name == name {
				found = &options[k]
			}
		}
		if found == nil {
			refuse(arg, "unknown option")
		}
		if !has {
			if i++; i == len(os.Args) {
				refuse(arg, "value missing")
			}
			value = os.Args[i]
		}
		found.set(value)
	}
}

// Seeded spreads a seed (0 included) into a start value: splitmix64, Steele 2014.
func Seeded(seed uint64) uint64 {
	z := seed + 0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	z ^= z >> 31
	if z == 0 {
		return 1
	}
	return z
}

// Random is the next number of a generator's state, for order and jitter, not for work.
func Random(state *uint64) uint64 {
	*state ^= *state << 13
	*state ^= *state >> 7
	*state ^= *state << 17
	return *state
}
