#!/usr/bin/env bash
# Shows that the tests would notice the usual mistakes of a rate limiter: seeds each defect of scripts/seeded-defects.txt
# by itself into a copy of the repository, runs the tests that should fail, and prints a table of those that did. Exits
# with 1 if a defect goes unnoticed, does not compile, or is written for code that is no longer there.
#
#   scripts/seeded-defects.sh          all, half an hour on two busy cores
#   scripts/seeded-defects.sh refund   those whose name contains the word
#
# The servers are those that ./test.sh has installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
list=scripts/seeded-defects.txt
word=${1:-}

declare -a names=() edits=() runs=() # of each defect; an edit is a file, a newline and its lines of the list

# read_list reads the list, whose first lines say how it is written.
read_list() {
  local line n=-1 edit=''
  keep() { if [ -n "$edit" ]; then edits[n]+=$edit$'\x01' edit=''; fi; }
  while IFS= read -r line; do
    case $line in
    'defect '*)
      keep
      n=$((n + 1)) names[n]=${line#defect } edits[n]='' runs[n]=''
      ;;
    'file '*) keep; edit=${line#file }$'\n' ;;
    'run '*) keep; runs[n]+=${line#run }$'\n' ;;
    [-+' ']*) edit+=$line$'\n' ;;
    '#'* | '') ;;
    *)
      echo "$list: what is ${line@Q}?" >&2
      exit 1
      ;;
    esac
  done <"$list"
  keep
}

# copy makes the throw-away copy: all files that are tracked or new, and a link to the servers.
copy() {
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  git ls-files -co --exclude-standard -z | while IFS= read -r -d '' f; do
    if [ -f "$f" ]; then printf '%s\0' "$f"; fi
  done | tar --null -T - -cf - | tar -xf - -C "$dir"
  ln -s "$PWD/.tools" "$dir/.tools"
}

# seed makes one edit in the copy, where its old lines stand exactly once.
seed() {
  local file=${1%%$'\n'*} line old='' new='' text
  if [ ! -e "$dir/.original/$file" ]; then
    mkdir -p "$(dirname "$dir/.original/$file")" && cp "$dir/$file" "$dir/.original/$file"
  fi
  while IFS= read -r line; do
    case $line in
    -*) old+=${line#-}$'\n' ;;
    +*) new+=${line#+}$'\n' ;;
    ' '*) old+=${line# }$'\n' new+=${line# }$'\n' ;;
    esac
  done <<<"${1#*$'\n'}"
  text=$'\n'$(cat "$dir/$file")$'\n'
  local rest=${text#*$'\n'"$old"}
  if [ "$rest" = "$text" ] || [[ $'\n'$rest == *$'\n'"$old"* ]]; then return 1; fi
  text=${text%%$'\n'"$old"*}$'\n'$new$rest
  printf '%s' "${text#$'\n'}" >"$dir/$file"
}

seed_all() { # seed_all EDITS
  local edit
  while IFS= read -r -d $'\x01' edit; do seed "$edit" || return 1; done <<<"$1"
}

restore() { # restore EDITS
  local edit file
  while IFS= read -r -d $'\x01' edit; do
    file=${edit%%$'\n'*}
    if [ -e "$dir/.original/$file" ]; then cp "$dir/.original/$file" "$dir/$file"; fi
  done <<<"$1"
}

# run_tests runs one line of a defect in the copy: a package, then perhaps what -run takes.
run_tests() {
  local package=${1%% *} only=${1#* }
  if [ "$only" = "$1" ]; then only=; fi
  (cd "$dir" && go test -short -count=1 -timeout 10m -run "$only" "$package") >"$dir/output" 2>&1
}

# failed prints the tests that failed, the deepest only, two of them.
failed() {
  sed -n 's/^ *--- FAIL: \([^ ]*\) .*/\1/p' "$dir/output" | awk '
    { names[NR] = $1; for (p = $1; sub("/[^/]*$", "", p); ) parent[p] }
    END { for (i = 1; i <= NR; i++) if (!(names[i] in parent) && n++ < 2) printf("%s`%s`", (n > 1 ? ", " : ""), names[i])
          if (n > 2) printf(" and %d more", n - 2) }'
}

# judge tries one defect and prints its row of the table.
judge() {
  local n=$1 run tests='' verdict=unnoticed
  if ! seed_all "${edits[n]}"; then
    verdict='does not apply'
  else
    while IFS= read -r run && [ -n "$run" ]; do
      if run_tests "$run"; then continue; fi
      if grep -q 'build failed\|setup failed\|compiling script' "$dir/output"; then
        verdict='does not compile'
        tail -20 "$dir/output" >&2
      else
        verdict=noticed tests=$(failed)
        if [ -z "$tests" ]; then tests="${run%% *} as a whole"; fi
      fi
      break
    done <<<"${runs[n]}"
  fi
  echo "| ${names[n]} | $tests | $verdict |"
  restore "${edits[n]}"
  if [ "$verdict" != noticed ]; then bad=$((bad + 1)); fi
}

read_list
chosen=()
for n in "${!names[@]}"; do
  if [[ ${names[n]} == *"$word"* ]]; then chosen+=("$n"); fi
done
if [ ${#chosen[@]} = 0 ]; then
  echo "no defect's name in $list contains ${word@Q}" >&2
  exit 1
fi
copy

# What fails without a defect proves nothing.
declare -A all=() # the tests of each package
for n in "${chosen[@]}"; do
  while IFS=' ' read -r package only && [ -n "$package" ]; do
    all[$package]+=${all[$package]:+|}${only:-.}
  done <<<"${runs[n]}"
done
echo "the tests without a defect: ${!all[*]}" >&2
for package in "${!all[@]}"; do
  if ! run_tests "$package ${all[$package]}"; then
    tail -40 "$dir/output" >&2
    echo "go test $package fails without any defect: mend that first" >&2
    exit 1
  fi
done

bad=0
echo '| defect | tests that fail | verdict |'
echo '|---|---|---|'
for n in "${chosen[@]}"; do judge "$n"; done
echo
echo "${#chosen[@]} defects, $bad of them not shown to be noticed, $SECONDS s"
[ "$bad" = 0 ]
