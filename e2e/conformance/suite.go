// Package conformance imports what `build` compiles, so that go.mod has the versions of all dependencies.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
