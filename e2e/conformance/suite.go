// Package conformance names what `build` compiles, so that go.mod has the versions of everything that it needs.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
