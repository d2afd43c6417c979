#!/usr/bin/env bash
# A machine's whole life, by the product's own programs: make demo. A control plane, the agent of a site, and six simulated
# machines, powered off behind Redfish controllers. Each step is checked, not only shown: the first that comes out wrong ends
# the demo with a code other than 0.
#
#   test/demo.sh          goes through it and leaves everything running until Ctrl-C
#   test/demo.sh --once   goes through it and ends (make demo-once)
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/bin:$PATH"
once="${1:-}"
began=$SECONDS

source test/demo-lib.sh

first_bytes() { metalsim ctl disk "$1" 0 --length 512 --control "$control"; }

say 'A control plane. It needs nothing but an installed PostgreSQL.'
show metald dev
starts metald metald dev --data-dir "$dir/data" --listen 127.0.0.1:0 --gateway-listen 127.0.0.1:0 --log-level warn
until_true 180 'metald is not up' grep -q '^Ctrl-C' "$dir/metald.out"
METAL_URL="$(awk '$1 == "address" {print $2}' "$dir/metald.out")"
export METAL_URL METAL_TOKEN_FILE="$dir/data/admin-token"
gateway="$(awk '$1 == "agents" {sub(",", "", $2); print $2}' "$dir/metald.out")"
authority="$(awk '$1 == "agents" {print $4}' "$dir/metald.out")"

say 'A place with a network of BMCs, a pool, and the agent of that place, which joins with a token that works once.'
site="$(kept metalctl create site fra1 -o name)"
pool="$(kept metalctl create pool gpu --site "$site" -o name)"
run metalctl agent token --site "$site" --out "$dir/join-token"
boot="127.0.0.1:$(free_port)"
show bcd site --gateway "$gateway" --ca-sha256 "$authority" --token-file join-token --boot-url "http://$boot"
starts bcd bcd site --gateway "$gateway" --ca-sha256 "$authority" --token-file "$dir/join-token" --state-dir "$dir/bcd" \
	--boot-listen "$boot" --boot-url "http://$boot"

say 'Six simulated machines, switched off: each has a Redfish controller over TLS, disks that hold bytes, and ports.'
show metalsim --machines 6 --post 1s --boot 1s --boot-url "http://$boot"
starts metalsim metalsim --machines 6 --post 1s --boot 1s --disk-bytes 8388608 --boot-url "http://$boot" --control 127.0.0.1:0 \
	--images "$dir/images" --verbose
until_true 180 'metalsim is not up' grep -q '^Ctrl-C' "$dir/metalsim.out"
control="$(awk '$1 == "Control:" {print $2}' "$dir/metalsim.out")"
awk '/^MACHINE/ || $1 ~ /^machine-/ {print $1, $2, $3}' "$dir/metalsim.out" | column -t 2>/dev/null ||
	awk '/^MACHINE/ || $1 ~ /^machine-/ {print $1, $2, $3}' "$dir/metalsim.out"
until_true 180 'the agent of the site did not join' bash -c 'metalctl agent list --role site | grep -q yes'
run metalctl agent list

say 'Something will go wrong: the first disk of machine-5 takes no writes.'
run metalsim ctl --control "$control" fault '{"machine": "machine-5", "deadDisk": {"disk": 0, "mode": "writes-fail"}}'

say 'They are handed over. From here on the control plane drives them: controller, ramdisk, inventory, burn-in, wipe.'
nodes=()
while read -r name address user password macs; do
	ports=()
	for mac in ${macs//,/ }; do ports+=(--mac "$mac"); done
	export METAL_BMC_USERNAME="$user" METAL_BMC_PASSWORD="$password"
	nodes+=("$(kept metalctl enroll --pool "$pool" --bmc "$address" --name "$name" "${ports[@]}" -o name)")
done < <(awk '$1 ~ /^machine-/ {print $1, $3, $4, $5, $6}' "$dir/metalsim.out")
[ "${#nodes[@]}" -eq 6 ] || wrong "${#nodes[@]} machines were enrolled"

show metalctl nodes --watch
metalctl nodes --watch --no-headers 2>/dev/null &
watching=$!
programs+=("$watching")
settled() { all_are ready "${nodes[@]:0:4}" "${nodes[5]}" && state_is failed "${nodes[4]}"; }
until_true 180 'the machines are not ready' settled
kill "$watching" 2>/dev/null || true
run metalctl nodes

say 'machine-5 failed, and says why. The disk is replaced, and its workflow goes on from the step that failed.'
run metalctl doctor || true # it ends with 7 where there is something to look at
broken="${nodes[4]}"
failed="$(metalctl workflow list "$broken" --limit 1 -o name)"
run metalctl workflow get "$failed"
run metalsim ctl --control "$control" fault '{"machine": "machine-5", "heal": true}'
run metalctl workflow retry "$failed" --watch
until_true 180 'machine-5 is not ready' state_is ready "$broken"
run metalctl maintenance off "$broken"

say 'An image: known by its digest, and signed by a key that the tenant trusts.'
tenant="$(metalctl whoami -o json | sed -n 's/^ *"tenantId": "\(.*\)",*$/\1/p' | head -n1)"
run metalctl image keygen --out "$dir/release.key"
run metalctl set-policy tenant "$tenant" --image-signer "release=$dir/release.key.pub"
image="$(awk '$1 ~ /simos-1.raw$/ {print $1; exit}' "$dir/metalsim.out")"
metalctl image sign "$dir/images/simos-1.raw" --key "$dir/release.key" >"$dir/simos-1.sig"
run metalctl image register host@1 --url "$image" --file "$dir/images/simos-1.raw" --signature "$dir/simos-1.sig"

say 'Two machines are deployed: the image is streamed to the disk, verified, and started; its agent joins as the same node.'
run metalctl deploy "${nodes[1]}" "${nodes[2]}" --profile image-host@1
until_true 180 'machine-2 and machine-3 are not deployed' all_are deployed "${nodes[1]}" "${nodes[2]}"
run metalctl workflow get "$(metalctl workflow list "${nodes[1]}" --limit 1 -o name)"
run metalctl agent list
show metalsim ctl disk machine-2 0
first_bytes machine-2 | sed -n 1,2p
first_bytes machine-2 | grep SIMBOOT >/dev/null || wrong 'there is no OS on the disk of machine-2'

say 'One is given back. Its disks are wiped and read back, and the machine signs what it did.'
run metalctl undeploy "${nodes[1]}" --wipe secure-erase --yes --watch
state_is ready "${nodes[1]}" || wrong 'machine-2 is not ready'
run metalctl attestation "${nodes[1]}"
metalctl attestation "${nodes[1]}" -o json | grep '"verified": true' >/dev/null || wrong 'the signature does not verify'
show metalsim ctl disk machine-2 0
first_bytes machine-2 | sed -n 1,2p
[ -z "$(first_bytes machine-2 | cut -c10-58 | tr -d '0 \n*')" ] || wrong 'the disk of machine-2 is not empty'

say 'What happened to it, by whom; and nobody can change what happened without it showing.'
run metalctl history "${nodes[1]}" | cut -c1-160
run metalctl audit verify
for secret in $(awk '$1 ~ /^machine-/ {print $5}' "$dir/metalsim.out"); do
	if grep -qaF "$secret" "$dir"/metald.* "$dir"/bcd.*; then wrong 'the password of a BMC is in a log'; fi
done
run metalctl nodes

say "That was it, in $((SECONDS - began)) s."
[ "$once" = --once ] && exit 0
cat <<END

Everything runs on until Ctrl-C. In another terminal, from this folder:

  export PATH="$PWD/bin:\$PATH" METAL_URL=$METAL_URL METAL_TOKEN_FILE=$METAL_TOKEN_FILE
  metalctl nodes
  metalctl deploy ${nodes[0]} --profile image-host@1 --watch
  metalctl rescue ${nodes[2]} --watch
  metalctl retire ${nodes[3]} --watch
  metalsim ctl list --control $control
  metalctl events --follow

The API is documented at $METAL_URL/docs.
END
wait "${programs[0]}"
