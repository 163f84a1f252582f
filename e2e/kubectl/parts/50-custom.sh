# Custom resources.
check 'define' 'created' apply -f "$manifests/boats.yaml"
check 'wait until established' 'condition met' wait --for=condition=Established crd/boats.example.com --timeout=10s
check 'create one' 'boat.example.com/ada created' apply -f "$manifests/boat.yaml"
check 'get by short name' 'ada +b1' get bt
check 'explain it' 'The number of its berth' explain boats.spec
sed 's/b1/b2/' "$manifests/boat.yaml" >"$work/boat.yaml"
check 'apply a change' 'configured' apply -f "$work/boat.yaml"
check 'apply on the server' 'serverside-applied' apply --server-side --force-conflicts -f "$manifests/boat.yaml"
check 'delete the definition' 'deleted' delete crd boats.example.com --timeout=30s
refuse 'its objects are gone' "the server doesn't have a resource type|could not find the requested resource" get boats
