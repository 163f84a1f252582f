# Deletion, with and without dependents.
"$kubectl_binary" create -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: owned
  ownerReferences:
  - {apiVersion: apps/v1, kind: Deployment, name: web, uid: $("$kubectl_binary" get deployment web -o 'jsonpath={.metadata.uid}'), controller: true, blockOwnerDeletion: true}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "nginx:1.27"}]}
YAML
check 'delete without cascade' 'deleted' delete deployment web --cascade=orphan --timeout=30s
check 'the orphan stays' '^$|^ *$' get rs owned -o 'jsonpath={.metadata.ownerReferences}'
check 'apply the owner anew' 'deployment.apps/web' apply -f "$manifests/workload.yaml"
uid=$("$kubectl_binary" get deployment web -o 'jsonpath={.metadata.uid}')
check 'adopt' 'patched' patch rs owned --type=merge -p "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"name\":\"web\",\"uid\":\"$uid\",\"controller\":true,\"blockOwnerDeletion\":true}]}}"
check 'delete with cascade' 'deleted' delete deployment web --cascade=foreground --timeout=30s
refuse 'what it owned is gone' 'replicasets.apps "owned" not found' get rs owned
check 'delete a pod' 'pod "pod-1" deleted' delete pod pod-1 --timeout=30s
check 'delete without waiting' 'deleted' delete pvc claim-1 --wait=false
check 'a protected claim waits' 'claim-1 +Terminating' get pvc
check 'set it free' 'patched' patch pvc claim-1 --type=merge -p '{"metadata":{"finalizers":null}}'
refuse 'it is gone' 'not found' get pvc claim-1
check 'delete by label' 'deleted' delete pods -l run=runner --timeout=30s
check 'delete by file' 'deleted' delete -f "$manifests/storage.yaml" --ignore-not-found --wait=false
check 'delete a namespace' 'namespace "other" deleted' delete namespace other --timeout=30s
refuse 'its content is gone' 'not found' get configmap -n other there
