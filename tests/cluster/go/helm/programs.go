//go:build programs

// Package programs keeps the programs that the tests build in go.mod's graph.
package programs

import _ "helm.sh/helm/v4/cmd/helm"
