# Invalid input is refused, with the field's name.
refuse 'a bad manifest' 'spec.accessModes: Unsupported value: "Sometimes"' create -f "$manifests/bad.yaml"
refuse 'an unknown field' 'unknown field "(spec.)?contaners"' create -f "$manifests/unknown-field.yaml"
since 25 check 'an unknown field, warned of' 'unknown field "spec.contaners"' create -f "$manifests/unknown-field.yaml" --validate=warn
refuse 'a value of the wrong type' 'replicas' create -f "$manifests/wrong-type.yaml"
refuse 'create what is there' 'persistentvolumes "disk-1" already exists' create -f "$manifests/storage.yaml"
refuse 'change a fixed field' 'spec.persistentvolumesource: Forbidden' patch pv disk-1 --type=merge -p '{"spec":{"local":{"path":"/other"}}}'
refuse 'shrink a claim' 'spec is immutable after creation' patch pvc claim-1 --type=merge -p '{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}'
refuse 'a bad name' 'a lowercase RFC 1123 subdomain' create configmap Bad_Name
refuse 'no such namespace' 'namespaces "nowhere" not found' -n nowhere create configmap a
refuse 'without the token' 'Unauthorized|must be logged in|provide credentials|Forbidden' --token=wrong get pods
