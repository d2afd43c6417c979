#!/usr/bin/env bash
# A machine's whole life on a machine that is not ours to script: make demo-machine. One machine in QEMU, powered off behind a
# Redfish controller, with firmware, a kernel and block devices of its own; its console is shown. It needs no rights: the
# network is QEMU's own. Each step is checked: the first that comes out wrong ends the demo with a code other than 0.
#
#   test/demo-machine.sh          goes through it and leaves everything running until Ctrl-C
#   test/demo-machine.sh --once   goes through it and ends
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/bin:$PATH"
once="${1:-}"
lab=.cache/lab/root
seen=10.0.2.2 # this computer, as the machine sees it
source test/demo-lib.sh

on_disk() { head -c 512 "$disk" | od -A d -t x1z; }
console() { # what the machine says on its serial port, beside what is asked of it
	tail -n +1 -F --pid=$$ "$1" 2>/dev/null | sed -un 's/\x1b\[[0-9;?=]*[a-zA-Z]//g; s/.*\r\(.\)/\1/; s/\r//g; s/[^[:print:]]//g; /[^ ]/s/^\(.\{0,140\}\).*/    | \1/p'
}

say 'The kernel of a distribution becomes the ramdisk that machines are worked on from.'
run bcd image build-ramdisk --kernel $lab/boot/vmlinuz-* --modules $lab/lib/modules --out "$dir/boot" | sed "s,$dir/,,"

say 'A machine in QEMU behind a Redfish controller. It is off, and its disk is empty.'
boot_port="$(free_port)"
gateway_port="$(free_port)"
show labmachine --boot-url "http://$seen:$boot_port"
mkdir "$dir/machine"
starts labmachine labmachine --dir "$dir/machine" --boot-url "http://$seen:$boot_port"
until_true 120 'the machine is not there' grep -q '^Ctrl-C' "$dir/labmachine.out"
read -r _ name address METAL_BMC_USERNAME METAL_BMC_PASSWORD mac <"$dir/labmachine.out"
export METAL_BMC_USERNAME METAL_BMC_PASSWORD
disk="$(awk '$1 == "disk" {print $2}' "$dir/labmachine.out")"
read -r image image_url < <(awk '$1 == "image" {print $2, $3}' "$dir/labmachine.out")
echo "$name  $address  $mac"

say 'A control plane, and the agent of a site. Both are reached by the machine under another address than by us.'
began=$SECONDS
show metald dev --gateway-url "https://$seen:$gateway_port" --gateway-name 127.0.0.1
starts metald metald dev --data-dir "$dir/data" --listen 127.0.0.1:0 --gateway-listen "127.0.0.1:$gateway_port" --log-level warn \
	--gateway-url "https://$seen:$gateway_port" --gateway-name 127.0.0.1 --gateway-name "$seen" --ramdisk-arg console=ttyS0 --ramdisk-arg panic=-1 --ramdisk-arg no_timer_check --ramdisk-arg quiet --ramdisk-arg metal.lldp-wait=1s
until_true 180 'metald is not up' grep -q '^Ctrl-C' "$dir/metald.out"
METAL_URL="$(awk '$1 == "address" {print $2}' "$dir/metald.out")"
export METAL_URL METAL_TOKEN_FILE="$dir/data/admin-token"
authority="$(awk '$1 == "agents" {print $4}' "$dir/metald.out")"
site="$(kept metalctl create site lab -o name)"
pool="$(kept metalctl create pool machines --site "$site" -o name)"
metalctl agent token --site "$site" --out "$dir/join-token" >/dev/null
show bcd site --gateway "https://127.0.0.1:$gateway_port" --boot-url "http://$seen:$boot_port" --boot-gateway "https://$seen:$gateway_port"
starts bcd bcd site --gateway "https://127.0.0.1:$gateway_port" --ca-sha256 "$authority" --token-file "$dir/join-token" --state-dir "$dir/bcd" \
	--boot-listen "127.0.0.1:$boot_port" --boot-url "http://$seen:$boot_port" --boot-gateway "https://$seen:$gateway_port" --boot-files "$dir/boot"
until_true 180 'the agent of the site did not join' bash -c 'metalctl agent list --role site | grep -q yes'

say 'A tenant may have profiles of its own in place of those that are shipped: a burn-in of seconds, since this is a demo.'
sed 's/"duration": "30s"/"duration": "3s"/' domain/profile/builtin/metal-commission.json >"$dir/metal-commission.json"
run metalctl profile create "$dir/metal-commission.json"

say 'It is handed over: powered on, booted from the network, inspected, burnt in, wiped, and switched off again.'
node="$(kept metalctl enroll --pool "$pool" --bmc "$address" --name "$name" --mac "$mac" -o name)"
console "$dir/machine/$name-console.log" &
programs+=($!)
until_true 480 'the machine is not ready' state_is ready "$node"
run metalctl get node "$node"

say 'An OS image is registered, signed by a key that the tenant trusts, and deployed: streamed, verified, started.'
tenant="$(metalctl whoami -o json | sed -n 's/^ *"tenantId": "\(.*\)",*$/\1/p' | head -n1)"
metalctl image keygen --out "$dir/release.key" >/dev/null
metalctl set-policy tenant "$tenant" --image-signer "release=$dir/release.key.pub" >/dev/null
metalctl image sign "$image" --key "$dir/release.key" >"$dir/image.sig"
run metalctl image register host@1 --url "$image_url" --file "$image" --signature "$dir/image.sig"
run metalctl deploy "$node" --profile image-host@1
until_true 480 'the machine is not deployed' state_is deployed "$node"
run metalctl agent list --node "$node"
cmp -n $((30 << 20)) -i $((1 << 20)) "$image" "$disk" || wrong 'the disk does not hold the image'
grep -qaF 'labos booted 1 times' "$disk" || wrong 'the OS did not write to its disk'

say 'It is given back: booted from the network again, wiped, read back, and the result is signed by the machine.'
run metalctl undeploy "$node" --wipe secure-erase --yes
until_true 480 'the machine is not ready' state_is ready "$node"
run metalctl attestation "$node"
metalctl attestation "$node" -o json | grep '"verified": true' >/dev/null || wrong 'the signature does not verify'
show "head -c 512 $(basename "$disk") | od"
on_disk
cmp -s "$disk" <(head -c "$(stat -c %s "$disk")" /dev/zero) || wrong 'the disk is not empty'
run metalctl history "$node" --newest --limit 12 | cut -c1-150
if grep -qaF "$METAL_BMC_PASSWORD" "$dir"/metald.* "$dir"/bcd.*; then wrong 'the password of the BMC is in a log'; fi

say "That was it, in $((SECONDS - began)) s."
[ "$once" = --once ] && exit 0
cat <<END

Everything runs on until Ctrl-C. In another terminal, from this folder:

  export PATH="$PWD/bin:\$PATH" METAL_URL=$METAL_URL METAL_TOKEN_FILE=$METAL_TOKEN_FILE
  metalctl deploy $node --profile image-host@1 --watch
  tail -F $dir/machine/$name-console.log
  metalctl why $node
END
wait "${programs[0]}"
