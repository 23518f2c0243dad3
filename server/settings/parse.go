package settings

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A setter reads what the environment says into a field. Its error says what was got, at
// most 40 bytes of it, and what to write.
type setter func(value string) error

func text(p *string) setter {
	return func(value string) error {
		*p = value
		return nil
	}
}

// yes reads what strconv.ParseBool does: 1, t, TRUE, false and so on.
func yes(p *bool) setter {
	return func(value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%.40q is neither true nor false: write one of them", value)
		}
		*p = b
		return nil
	}
}

// number reads an integer from least to most, in any of Go's ways to write one: 0x10 is 16.
func number(p *int, least, most int64) setter {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 0, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%.40q is not a whole number from %d to %d: write one", value, least, most)
		}
		*p = int(n)
		return nil
	}
}

// port reads a TCP or UDP port; 0 lets the system choose.
func port(p *int) setter { return number(p, 0, math.MaxUint16) }

// count reads a number that has no bound of its own.
func count(p *int) setter { return number(p, 0, math.MaxInt32) }

// seconds reads a number of seconds, at most a year.
func seconds(p *time.Duration) setter {
	var n int
	set := number(&n, 0, 366*24*60*60)
	return func(value string) error {
		if err := set(value); err != nil {
			return err
		}
		*p = time.Duration(n) * time.Second
		return nil
	}
}

// share reads a number from 0 to 1.
func share[F float32 | float64](p *F) setter {
	return func(value string) error {
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return fmt.Errorf("%.40q is not a number from 0 to 1: write one such as 0.8", value)
		}
		*p = F(f)
		return nil
	}
}

// duration reads a time such as 1h30m; 0 needs no unit.
func duration(p *time.Duration) setter {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return fmt.Errorf("%.40q is not a time from 0: write one such as 150us, 3s or 24h", value)
		}
		*p = d
		return nil
	}
}

// list reads a,b,c; nothing is an empty list.
func list(p *[]string) setter {
	return func(value string) error {
		if strings.TrimSpace(value) != "" {
			*p = strings.Split(value, ",")
		}
		return nil
	}
}

// pairs reads k:v,k:v with the separator between key and value.
func pairs(p *map[string]string, separator string) setter {
	return func(value string) error {
		m := make(map[string]string)
		for pair := range strings.SplitSeq(value, ",") {
			if strings.TrimSpace(value) == "" {
				break
			}
			k, v, ok := strings.Cut(pair, separator)
			if !ok || strings.TrimSpace(k) == "" {
				return fmt.Errorf("%.40q is not KEY%sVALUE: write such pairs with commas between", pair, separator)
			}
			m[k] = v
		}
		*p = m
		return nil
	}
}

// oneOf reads one of the words, in any case.
func oneOf(p *string, words ...string) setter {
	return func(value string) error {
		i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, value) })
		if i < 0 {
			return fmt.Errorf("%.40q is not known: write %s", value, orList(words))
		}
		*p = words[i]
		return nil
	}
}

// orList writes words as "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// header reads the name of an HTTP header.
func header(p *string) setter {
	return func(value string) error {
		bad := func(r rune) bool {
			return r > '~' || r <= ' ' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
		}
		if value == "" || strings.ContainsFunc(value, bad) {
			return fmt.Errorf("%.40q is not a header's name: write one of letters, digits and -", value)
		}
		*p = value
		return nil
	}
}

// address reads HOST:PORT or :PORT.
func address(p *string) setter {
	return func(value string) error {
		if err := checkAddress(value); err != nil {
			return err
		}
		*p = value
		return nil
	}
}

// path reads the path of a URL.
func path(p *string) setter {
	return func(value string) error {
		if !strings.HasPrefix(value, "/") || strings.ContainsAny(value, "?# {}") {
			return fmt.Errorf("%.40q is not a path: write one that begins with /", value)
		}
		*p = value
		return nil
	}
}

// isWord reads whether a text is the word, in any case.
func isWord(p *bool, word string) setter {
	return func(value string) error {
		*p = strings.EqualFold(value, word)
		return nil
	}
}

// either reads whether it is one of two words, and not the other.
func either(p *bool, one, other string) setter {
	return func(value string) error {
		if value != one && value != other {
			return fmt.Errorf("%.40q is not known: write %s or %s", value, other, one)
		}
		*p = value == one
		return nil
	}
}

// level reads the least level that is logged.
func level(p *string) setter {
	set := oneOf(p, "panic", "fatal", "error", "warn", "warning", "info", "debug", "trace")
	return func(value string) error {
		if err := set(value); err != nil {
			return err
		}
		if *p == "warning" {
			*p = "warn"
		}
		return nil
	}
}

// blank makes the empty text mean something, as it does to the original in some settings.
func blank(means string, set setter) setter {
	return func(value string) error {
		if value == "" {
			value = means
		}
		return set(value)
	}
}

// backend reads what keeps the counters. The original knows no memory.
func backend(p *string) setter {
	return func(value string) error {
		switch value {
		case "redis", "memory":
			*p = value
			return nil
		case "memcache":
			return errors.New("memcached is not supported, since it cannot count exactly: write redis, and where it is in REDIS_URL")
		}
		return fmt.Errorf("%.40q is not known: write redis, or memory for a single instance", value)
	}
}
