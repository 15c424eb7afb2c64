//go:build tools

package tools

import _ "github.com/openshift/source-to-image/cmd/s2i"
