# Every common form of get.
check 'get pv' 'disk-1 +10Gi +RWO +Retain' get pv
check 'get pvc' 'claim-1 +Pending' get pvc
check 'get sc' 'local +kubernetes.io/no-provisioner +Delete +WaitForFirstConsumer +false' get sc
check 'get several wide' 'VOLUMEMODE' get pv,pvc,sc,pods -o wide
check 'get pods wide' 'pod-1 +0/1 +Pending +0 .* <none> +<none> +<none> +<none>' get pods -o wide
check 'get deployment' 'web +0/2 +0 +0' get deployment
check 'get nodes' 'node-1' get nodes
check 'get all' 'deployment.apps/web' get all
check 'get as yaml' 'storageClassName: local' get pv disk-1 -o yaml
check 'get as json' '"storageClassName": "local"' get pv disk-1 -o json
check 'get by jsonpath' '^10Gi$' get pv disk-1 -o 'jsonpath={.spec.capacity.storage}'
check 'get by custom columns' '^disk-1 +local' get pv -o 'custom-columns=NAME:.metadata.name,CLASS:.spec.storageClassName'
check 'get names' '^persistentvolume/disk-1$' get pv -o name
check 'get by label' 'disk-1' get pv -l tier=fast
check 'get by another label' 'No resources found' get pv -l tier=slow
check 'get by field' 'pod-1' get pods --field-selector status.phase=Pending,spec.nodeName=
check 'get by name as field' 'pod-1' get pods --field-selector metadata.name=pod-1
refuse 'get by a field that is none' 'field label not supported' get pods --field-selector spec.nothing=1
check 'show labels' 'app=database' get pods --show-labels
check 'label columns' 'DATABASE|database' get pods -L app
check 'sort' 'default' get ns --sort-by=.metadata.name
check 'get across namespaces' '^other +there' get configmaps -A
check 'chunked' 'kube-system' get ns --chunk-size=1
check 'no headers' '^disk-1' get pv --no-headers
check 'raw' '"kind":"NamespaceList"' get --raw /api/v1/namespaces
check 'raw health' '^ok$' get --raw /readyz
check 'raw metrics' 'berth_apiserver_requests_total' get --raw /metrics
refuse 'get what is not there' 'persistentvolumes "nobody" not found' get pv nobody
since 21 check 'show managed fields' 'fieldsV1' get deployment web -o yaml --show-managed-fields
check 'describe pv' 'Node Affinity' describe pv disk-1
check 'describe pvc' 'Used By: +pod-1' describe pvc claim-1
check 'describe pod' 'ClaimName: +claim-1' describe pod pod-1
check 'describe node' 'Taints' describe node node-1
check 'describe sc' 'VolumeBindingMode: +WaitForFirstConsumer' describe sc local
check 'describe deployment' 'Replicas:' describe deployment web
since 26 check 'events' '.' events
