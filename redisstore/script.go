package redisstore

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
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
	several    script
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

// luaFiles names the file of each kind of state.
var luaFiles = map[algorithm.Kind]string{
	algorithm.KindTAT:     "gcra.lua",
	algorithm.KindWindow:  "window.lua",
	algorithm.KindSliding: "sliding.lua",
	algorithm.KindLog:     "log.lua",
}

// assemble joins each algorithm's check and commit to a driver: one ask, or several.
func assemble(clock string) scripts {
	s := scripts{take: map[algorithm.Kind]script{}, peek: map[algorithm.Kind]script{}}
	several := []string{clock, "local check = {}"}
	library := sections("log.lua")["library"]
	for _, kind := range []algorithm.Kind{algorithm.KindTAT, algorithm.KindWindow, algorithm.KindSliding} {
		part := sections(luaFiles[kind])
		one := clock + "\nlocal A, i, key = ARGV, 0, KEYS[1]\nlocal s = redis.call('GET', key)"
		s.take[kind] = newScript(one, part["check"], part["commit"], part["reply"])
		s.peek[kind] = newScript(one, part["check"], part["peek"])
		several = append(several, fmt.Sprintf("check.%c = function(s, now, A, i, m)\n%s\n%s\nend", kind, part["check"], part["encode"]))
	}
	part := sections("log.lua")
	one := "local A, i, L = ARGV, 0, log_open(KEYS[1])"
	s.take[algorithm.KindLog] = newScript(clock, library, one, part["check"], part["commit"], part["reply"])
	s.peek[algorithm.KindLog] = newScript(clock, library, one, part["check"], part["peek"])
	several = append(several, library, fmt.Sprintf("local function check_l(L, now, A, i, m)\n%s\n%s\nend", part["check"], part["encode"]))
	s.several = newScript(append(several, source("several.lua"))...)
	s.refund = newScript(clock, library, source("refund.lua"))
	s.reset = newScript(clock, source("reset.lua"))
	return s
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
