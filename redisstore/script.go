package redisstore

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"weir.dev/weir/internal/algorithm"
)

//go:embed lua/*.lua
var sources embed.FS

// script is a text that a server runs, known there by its SHA-1.
type script struct{ text, sha string }

func newScript(parts ...string) script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// scripts are all the scripts under one clock.
type scripts struct {
	take, peek map[algorithm.Kind]script
	several    map[string]script // by the kinds asked about, in the order of kinds
	straight   map[string]script // the same for the usual question
	refund     script
	reset      script
}

// The clock of a script: the server's, or in tests and replays the last argument. Keys
// expire by the server's in any case, a second after they could be told from new ones;
// a replay, which may be slower than what it replays, has a minute.
const (
	serverClock = `local t = redis.call('TIME')
local now, m, slack = (t[1] - 1600000000) * 1000000 + t[2], #ARGV, 1000`
	givenClock = `local t = {1600000000, ARGV[#ARGV]}
local now, m, slack = t[2] + 0, #ARGV - 1, 60000`
)

var (
	live   = assemble(serverClock)
	replay = assemble(givenClock)
)

// kinds of state that questions are about, in the order in which a set of them is written.
var kinds = []algorithm.Kind{algorithm.KindTAT, algorithm.KindWindow, algorithm.KindSliding, algorithm.KindLog}

// luaFiles names the file of each kind of state.
var luaFiles = map[algorithm.Kind]string{
	algorithm.KindTAT:     "gcra.lua",
	algorithm.KindWindow:  "window.lua",
	algorithm.KindSliding: "sliding.lua",
	algorithm.KindLog:     "log.lua",
}

// assemble joins each algorithm's check and commit to a driver: one ask, or several.
func assemble(clock string) scripts {
	s := scripts{take: map[algorithm.Kind]script{}, peek: map[algorithm.Kind]script{}, several: map[string]script{}, straight: map[string]script{}}
	library := sections("log.lua")["library"]
	for _, kind := range kinds {
		part := sections(luaFiles[kind])
		begin := clock + "\nlocal A, i, key = ARGV, 0, KEYS[1]\nlocal s = redis.call('GET', key)"
		if kind == algorithm.KindLog {
			begin = clock + "\n" + library + "\nlocal A, i, L = ARGV, 0, log_open(KEYS[1])"
		}
		s.take[kind] = newScript(begin, part["check"], part["commit"], part["reply"])
		s.peek[kind] = newScript(begin, part["check"], part["peek"])
	}
	for set := 1; set < 1<<len(kinds); set++ {
		var about []algorithm.Kind
		for n, kind := range kinds {
			if set&(1<<n) != 0 {
				about = append(about, kind)
			}
		}
		s.several[string(about)] = assembleSeveral(clock, library, about)
		if !slices.Contains(about, algorithm.KindLog) {
			s.straight[string(about)] = assembleStraight(clock, about)
		}
	}
	s.refund = newScript(clock, library, source("refund.lua"))
	s.reset = newScript(clock, source("reset.lua"))
	return s
}

// assembleSeveral joins the checks of some kinds to the driver of several asks. A script
// for each set of kinds is worth it: a server makes every function of a script anew at
// each call.
func assembleSeveral(clock, library string, about []algorithm.Kind) script {
	driver := sections("several.lua")
	parts := []string{clock, "local check = {}", driver["start"]}
	for _, kind := range about {
		part := sections(luaFiles[kind])
		body := part["check"] + "\n" + part["encode"]
		if kind == algorithm.KindLog {
			parts = append(parts, library, "local function check_l(L, now, A, i, m)\n"+body+"\nend", driver["log"])
		} else {
			parts = append(parts, fmt.Sprintf("check.%c = function(s, now, A, i, m)\n%s\nend", kind, body))
		}
	}
	return newScript(append(parts, driver["rest"])...)
}

// assembleStraight joins the checks and commits of some kinds to the driver of the usual
// question about several.
func assembleStraight(clock string, about []algorithm.Kind) script {
	driver := sections("straight.lua")
	parts := []string{clock, driver["start"]}
	for _, kind := range about {
		part := sections(luaFiles[kind])
		parts = append(parts, fmt.Sprintf("check.%c = function(key, s, now, i, m, write)", kind), part["check"], "if write then", part["commit"], "end", part["tell"], "end")
	}
	return newScript(append(parts, driver["rest"])...)
}

// sections splits a Lua file at its --@name lines, without comments.
func sections(file string) map[string]string {
	parts := map[string]string{}
	for _, section := range strings.Split(source(file), "--@")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		parts[name] = text
	}
	return parts
}

// source returns a Lua file without its comment lines, which servers would keep.
func source(file string) string {
	text, err := sources.ReadFile("lua/" + file)
	if err != nil {
		panic(err) // the files are part of the program
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "-- ") && trimmed != "--" && trimmed != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
