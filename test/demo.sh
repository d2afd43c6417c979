#!/usr/bin/env bash
# A tour of the control plane, by its own programs: make demo. Everything it starts, it stops; everything it keeps is in a
# temporary directory. Each step that should be refused is checked to be refused.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/bin:$PATH"

dir="$(mktemp -d)"
chmod 755 "$dir"
metald dev --data-dir "$dir" --listen 127.0.0.1:0 --log-level error >"$dir/out" 2>"$dir/log" &
daemon=$!
trap 'kill -TERM $daemon 2>/dev/null; wait $daemon || true; rm -rf "$dir"' EXIT
for _ in $(seq 300); do
    grep -q '^Ctrl-C' "$dir/out" && break
    kill -0 $daemon 2>/dev/null || { cat "$dir/log"; exit 1; }
    sleep 0.1
done
METAL_URL="$(awk '$1 == "address" {print $2}' "$dir/out")"
export METAL_URL METAL_TOKEN_FILE="$dir/admin-token"
export METAL_BMC_USERNAME=root METAL_BMC_PASSWORD=0123456789

say() { printf '\n# %s\n' "$*"; }
show() { printf '$'; printf ' %s' "${@@Q}" | sed "s/'\([A-Za-z0-9_.:/@=-]*\)'/\1/g"; echo; }
run() { show "$@"; "$@" 2>&1; }
kept() { show "$@" >&2; "$@"; } # for what is kept in a variable
refused() { # CODE COMMAND…: the command must fail with the code
    local code="$1" out; shift
    show "$@"
    if out="$("$@" 2>&1)"; then echo "$out"; echo "this should have been refused with $code"; exit 1; fi
    echo "$out"
    [[ "$out" == *"$code"* ]] || { echo "this should have been refused with $code"; exit 1; }
}

say 'A place with BMCs, a pool, and a machine. Its credentials are sealed; the log holds a reference.'
site="$(kept metalctl create site fra1 -o name)"
pool="$(kept metalctl create pool gpu --site "$site" -o name)"
node="$(kept metalctl enroll --pool "$pool" --bmc 10.0.0.10 --mac B8-CE-F6-00-00-01 --name rack7-u12 -o name)"
run metalctl get node "$node"

say 'The same BMC in another form is the same BMC.'
refused CONFLICT metalctl enroll --pool "$pool" --bmc HTTPS://10.0.0.10:443/redfish/v1/

say 'Verbs go by the table, and a refusal says what is legal.'
refused INVALID_STATE metalctl deploy "$node" --profile image-host@1
run metalctl cordon "$node" --reason 'fan 3 is loud'
run metalctl maintenance on "$node" --reason 'fan 3'
refused CONFLICT metalctl uncordon "$node" --if-match 2

say 'What happened, by whom, and why it is where it is.'
run metalctl history "$node"
run metalctl why "$node"

say 'Every past state can be replayed, and nobody can change what happened without it showing.'
run metalctl replay "$node"
run metalctl audit verify
if grep -rqa 0123456789 "$dir/log" "$dir/out"; then echo 'a credential is in the log'; exit 1; fi

say 'That was it.'
