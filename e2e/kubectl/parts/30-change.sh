# Changes in place.
check 'label' 'labeled' label pv disk-1 shelf=top
refuse 'label without overwrite' 'already has a value' label pv disk-1 shelf=low
check 'label with overwrite' 'labeled' label pv disk-1 shelf=low --overwrite
check 'unlabel' 'labeled' label pv disk-1 shelf-
check 'annotate' 'annotate' annotate pvc claim-1 note=hello
check 'patch strategically' 'patched' patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"nginx:1.29"}]}}}}'
check 'the rest of the container stays' '^nginx:1.29 80$' get deployment web -o 'jsonpath={.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].ports[0].containerPort}'
check 'patch by merge' 'patched' patch configmap settings --type=merge -p '{"data":{"x":"y"}}'
check 'patch by json' 'patched' patch configmap settings --type=json -p '[{"op":"remove","path":"/data/x"}]'
since 24 check 'patch the status' 'patched' patch pv disk-1 --subresource=status --type=merge -p '{"status":{"phase":"Available"}}'
since 24 check 'the status is there' 'disk-1 .* Available' get pv
EDITOR="sed -i s/a:\ c/a:\ d/" k edit configmap settings
if ((code == 0)) && grep -q edited <<<"$output"; then passed=$((passed + 1)); else fail 'edit'; fi
check 'scale' 'scaled' scale deployment web --replicas=5
check 'scaled' '^5$' get deployment web -o 'jsonpath={.spec.replicas}'
refuse 'scale from a wrong number' '[Ee]xpected replicas|precondition' scale deployment web --current-replicas=2 --replicas=1
check 'set image' 'image updated' set image deployment/web main=nginx:1.30
check 'taint' 'tainted' taint node node-1 disk=slow:NoSchedule
check 'tainted' '^disk=slow$' get node node-1 -o 'jsonpath={.spec.taints[0].key}={.spec.taints[0].value}'
check 'untaint' 'untainted' taint node node-1 disk:NoSchedule-
check 'cordon' 'cordoned' cordon node-1
check 'cordoned' 'SchedulingDisabled' get nodes
check 'uncordon' 'uncordoned' uncordon node-1
since 24 check 'wait for a condition that holds' 'condition met' wait --for=jsonpath='{.status.phase}'=Available pv/disk-1 --timeout=10s
since 24 refuse 'wait for one that does not' 'timed out' wait --for=jsonpath='{.status.phase}'=Bound pv/disk-1 --timeout=1s

# A watch that shows changes by others.
timeout 20 "$kubectl_binary" get configmap settings -w -o 'jsonpath={.data.watched}{"\n"}' >"$work/watch.out" 2>&1 &
watcher=$!
for number in $(seq 60); do
  "$kubectl_binary" patch configmap settings --type=merge -p "{\"data\":{\"watched\":\"w$number\"}}" >/dev/null 2>&1
  grep -q "w$number" "$work/watch.out" && break
done
kill "$watcher" 2>/dev/null; wait "$watcher" 2>/dev/null
output=$(cat "$work/watch.out")
if grep -q '^w' <<<"$output"; then passed=$((passed + 1)); else fail 'get -w -o jsonpath'; fi
timeout 20 "$kubectl_binary" get pv -w --no-headers >"$work/watch.out" 2>&1 &
watcher=$!
for number in $(seq 60); do
  "$kubectl_binary" label pv disk-1 "watched=w$number" --overwrite >/dev/null
  (($(grep -c disk-1 "$work/watch.out") > 1)) && break
done
kill "$watcher" 2>/dev/null; wait "$watcher" 2>/dev/null
output=$(cat "$work/watch.out")
if (($(grep -c '^disk-1 ' <<<"$output") > 1)); then passed=$((passed + 1)); else fail 'get -w as a table'; fi
