// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
)

const (
	// nodeNameEnv is what pods are given their node's name in (spec.nodeName).
	nodeNameEnv    = "NODE_NAME"
	kubeletPort    = "10250"
	defaultSocket  = "unix:///var/lib/kubelet/pod-resources/kubelet.sock"
	defaultTimeout = 2 * time.Second
)

// Config says whom the names of containers are asked for. Both sources are off
// unless their key is there.
type Config struct {
	// Kubelet is the kubelet's list of pods.
	Kubelet configoptional.Optional[PodListConfig] `mapstructure:"kubelet"`
	// PodResources is the kubelet's socket for who has which device.
	PodResources configoptional.Optional[PodResourcesConfig] `mapstructure:"pod_resources"`
}

// PodListConfig is how the kubelet's list of pods is reached.
type PodListConfig struct {
	// HTTP holds endpoint, timeout, tls and the other keys of an HTTP client. An
	// empty endpoint is port 10250 of the node that NODE_NAME names.
	HTTP confighttp.ClientConfig `mapstructure:",squash"`
	// TokenFile holds the bearer token. Empty is that of the pod's service
	// account, where there is one, for an https endpoint without other credentials.
	TokenFile string `mapstructure:"token_file"`
}

// PodResourcesConfig is how the pod-resources socket is reached.
type PodResourcesConfig struct {
	// Endpoint is the socket as unix:///PATH.
	Endpoint string `mapstructure:"endpoint"`
	// Timeout bounds one call.
	Timeout time.Duration `mapstructure:"timeout"`
}

// NewDefaultConfig returns a section in which both sources are off, and a key
// with nothing after it turns one on.
func NewDefaultConfig() Config {
	client := confighttp.NewDefaultClientConfig()
	client.Timeout = defaultTimeout
	// The list is asked for seldom, and a client of confighttp cannot be told to
	// close what it keeps open.
	client.Keepalive = configoptional.Default(confighttp.NewDefaultKeepaliveClientConfig())
	return Config{
		Kubelet:      configoptional.Default(PodListConfig{HTTP: client}),
		PodResources: configoptional.Default(PodResourcesConfig{Endpoint: defaultSocket, Timeout: defaultTimeout}),
	}
}

// Marshal leaves out what is off: a key with nothing after it means on.
func (c Config) Marshal(conf *confmap.Conf) error {
	sections := map[string]any{}
	if section := c.Kubelet.Get(); section != nil {
		sections["kubelet"] = section
	}
	if section := c.PodResources.Get(); section != nil {
		sections["pod_resources"] = section
	}
	if err := conf.Marshal(sections); err != nil {
		return err
	}
	if section := c.Kubelet.Get(); section != nil && !section.HTTP.Keepalive.HasValue() {
		conf.Delete("kubelet::keepalive")
	}
	return nil
}

// Format prints what the collector prints of a configuration. What an Optional
// holds is out of fmt's reach, so that it would print secrets as they are.
func (c Config) Format(state fmt.State, _ rune) {
	conf := confmap.New()
	if err := conf.Marshal(c); err != nil {
		return
	}
	_, _ = fmt.Fprint(state, conf.ToStringMap())
}

// Validate checks the kubelet's address and credentials.
func (c *PodListConfig) Validate() error {
	u, err := c.podsURL()
	errs := []error{err, validateTimeout(c.HTTP.Timeout)}
	if c.TokenFile != "" && u != nil && u.Scheme != "https" {
		errs = append(errs, errors.New("token_file: needs an https endpoint, since others on the network could read the token"))
	}
	if c.TokenFile != "" && c.hasCredentials() {
		errs = append(errs, errors.New("token_file: cannot stand beside auth or an Authorization header"))
	}
	return errors.Join(errs...)
}

// Validate checks the socket's address.
func (c *PodResourcesConfig) Validate() error {
	_, err := c.socket()
	return errors.Join(err, validateTimeout(c.Timeout))
}

func validateTimeout(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("timeout: %s: must be above 0, since the kubelet may never answer", d)
	}
	return nil
}

// podsURL returns the address of the list of pods. Errors show no endpoint that
// may have a password in it.
func (c *PodListConfig) podsURL() (*url.URL, error) {
	endpoint := c.HTTP.Endpoint
	if endpoint == "" {
		node := os.Getenv(nodeNameEnv)
		if node == "" {
			return nil, fmt.Errorf("endpoint: must be set to https://NODE:%s, or the environment variable %s to the node's name (spec.nodeName)",
				kubeletPort, nodeNameEnv)
		}
		endpoint = "https://" + net.JoinHostPort(node, kubeletPort)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("endpoint: must be a URL as https://NODE:10250, without user, query or fragment")
	}
	if (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" {
		return nil, fmt.Errorf("endpoint: %q: must be https://NODE:10250, or http://NODE:10255 for the read-only port", endpoint)
	}
	return u.JoinPath("pods"), nil
}

// hasCredentials tells whether requests get their credentials from confighttp.
func (c *PodListConfig) hasCredentials() bool {
	if c.HTTP.Auth.HasValue() {
		return true
	}
	for name := range c.HTTP.Headers.Iter {
		if strings.EqualFold(name, "Authorization") {
			return true
		}
	}
	return false
}

// socket returns the path of the socket. The API has no protection of its own,
// so that it is nowhere served on a network.
func (c *PodResourcesConfig) socket() (string, error) {
	file, ok := strings.CutPrefix(c.Endpoint, "unix://")
	if !ok || !path.IsAbs(file) {
		return "", fmt.Errorf("endpoint: %q: must be a socket as %s", c.Endpoint, defaultSocket)
	}
	return file, nil
}
