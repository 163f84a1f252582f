# Objects are created, changed and read back in every common form.
check 'version' 'Server Version' version
check 'api-resources' 'persistentvolumeclaims +pvc +v1 +true +PersistentVolumeClaim' api-resources
check 'api-resources of a group' 'storageclasses' api-resources --api-group=storage.k8s.io
check 'api-versions' 'storage.k8s.io/v1' api-versions
check 'cluster-info' 'is running at' cluster-info
check 'explain' 'nodeName' explain pod.spec
check 'explain a field' 'containers' explain deployment.spec.template.spec.containers
check 'explain recursively' 'volumeBindingMode' explain storageclass --recursive
check 'auth can-i' 'yes' auth can-i create pods
check 'auth can-i --list' '\*' auth can-i --list
since 28 check 'auth whoami' 'berth-admin' auth whoami

check 'apply storage' 'persistentvolume/disk-1 created' apply -f "$manifests/storage.yaml"
check 'apply storage again' 'persistentvolume/disk-1 unchanged' apply -f "$manifests/storage.yaml"
check 'apply workload' 'deployment.apps/web created' apply -f "$manifests/workload.yaml"
sed 's/replicas: 2/replicas: 3/; s/nginx:1.27/nginx:1.28/' "$manifests/workload.yaml" >"$work/changed.yaml"
k diff -f "$work/changed.yaml"
if ((code == 1)) && grep -q '^+.*replicas: 3' <<<"$output"; then passed=$((passed + 1)); else fail 'diff shows the change'; fi
check 'apply a change' 'deployment.apps/web configured' apply -f "$work/changed.yaml"
check 'the change is there' '^3 nginx:1.28$' get deployment web -o 'jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image}'
refuse 'server-side apply of a field of another' 'conflict' apply --server-side --field-manager=other -f "$manifests/workload.yaml"
check 'server-side apply after client-side apply' 'deployment.apps/web serverside-applied' apply --server-side -f "$manifests/workload.yaml"
check 'what was applied last is noted anew' 'replicas.{1,3}:2' get deployment web -o 'jsonpath={.metadata.annotations}'
check 'server-side apply by force' 'serverside-applied' apply --server-side --force-conflicts -f "$manifests/workload.yaml"
check 'server-side apply again' 'serverside-applied' apply --server-side -f "$manifests/workload.yaml"
check 'dry run on the server' 'created \(server dry run\)' create configmap dry --from-literal=a=b --dry-run=server
refuse 'a dry run leaves nothing' 'not found' get configmap dry
check 'create imperatively' 'configmap/settings created' create configmap settings --from-literal=a=b
check 'replace' 'replaced' replace -f <("$kubectl_binary" get configmap settings -o json | sed 's/"a": "b"/"a": "c"/')
check 'the replacement is there' '^c$' get configmap settings -o 'jsonpath={.data.a}'
check 'create a secret' 'secret/password created' create secret generic password --from-literal=p=secret
check 'create a namespace' 'namespace/other created' create namespace other
check 'create in a namespace' 'configmap/there created' -n other create configmap there --from-literal=a=b
check 'run a pod' 'pod/runner created' run runner --image=busybox:1.36
check 'create a job' 'job.batch/once created' create job once --image=busybox:1.36
check 'expose' 'service/web exposed' expose deployment web --port=80
