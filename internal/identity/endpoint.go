// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/wandbsys/otelcol-wandbsys/internal/metadata"
)

// Endpoint is something that is asked for metrics of its own.
type Endpoint struct {
	// Name is the endpoint's in the configuration.
	Name string
	// Address is a host, or the path of a Unix socket, which has no Port (0).
	Address string
	Port    int
	// Scheme is http or https.
	Scheme string
	// Local says that the endpoint is on this machine.
	Local bool
}

// Endpoint returns the resource of an endpoint. Its points are another service's, on
// this machine or not.
func (m *Machine) Endpoint(e *Endpoint) pcommon.Resource {
	rb := metadata.NewResourceBuilder(m.attrs)
	if e.Local {
		rb.SetHostName(m.hostName)
	}
	rb.SetServiceName(e.Name)
	rb.SetServiceInstanceID(m.hostName + "/" + e.Name)
	rb.SetServerAddress(e.Address)
	if e.Port > 0 {
		rb.SetServerPort(int64(e.Port))
	}
	rb.SetURLScheme(e.Scheme)
	setText(rb.SetWandbLabel, m.label)
	return rb.Emit()
}
