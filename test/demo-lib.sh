# What the demos have in common: programs that end with the demo, commands that are shown as they are run, and waiting.
# It is sourced, from the root of the repository, with `set -euo pipefail`.

dir="$(mktemp -d)"
chmod 755 "$dir"
programs=()
finish() {
	local code=$?
	for program in "${programs[@]:1}" "${programs[@]:0:1}"; do # the control plane last
		kill -TERM "$program" 2>/dev/null && wait "$program" 2>/dev/null || true
	done
	if [ "$code" -ne 0 ] && [ "$code" -ne 130 ]; then
		echo "the demo failed; what the programs said is in $dir"
		tail -n 20 "$dir"/*.log >&2
	else
		rm -rf "$dir"
	fi
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n# %s\n' "$*"; }
show() { printf '$'; printf ' %s' "${@@Q}" | sed "s/'\([A-Za-z0-9_.:,/@=-]*\)'/\1/g"; echo; }
run() { show "$@"; "$@" 2>&1; }
kept() { show "$@" >&2; "$@"; } # for what is kept in a variable
wrong() { echo "WRONG: $*" >&2; exit 1; }

# until_true SECONDS WHAT COMMAND…: the command must succeed within the time.
until_true() {
	local left=$(($1 * 5)) what="$2"
	shift 2
	until "$@" >/dev/null 2>&1; do
		((left-- > 0)) || wrong "$what, after all that time"
		sleep 0.2
	done
}
# starts NAME COMMAND…: a program in the background, its output and its log in files.
starts() {
	local name="$1"
	shift
	"$@" >"$dir/$name.out" 2>"$dir/$name.log" &
	programs+=($!)
}
# free_port: below the ports that systems give to whoever asks for any.
free_port() {
	local port
	while port=$((12000 + RANDOM % 20000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
	echo "$port"
}
state_is() { [ "$(metalctl get node "$2" -o json | sed -n 's/^ *"provisionState": "\(.*\)",*$/\1/p')" = "$1" ]; }
all_are() { # STATE NODE…
	local state="$1" node
	shift
	for node in "$@"; do state_is "$state" "$node" || return 1; done
}
