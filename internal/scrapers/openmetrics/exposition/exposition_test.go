// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

const (
	classicType     = "text/plain; version=0.0.4; charset=utf-8"
	openMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	protobufType    = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
