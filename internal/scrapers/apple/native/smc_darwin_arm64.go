// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin && arm64

package native

import (
	"errors"
	"fmt"

	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

const (
	smcClass = "AppleSMC"
	// smcEndpoint is the entry of that class that is asked, where there are several.
	smcEndpoint = "AppleSMCKeysEndpoint"
	smcSelector = 2
)

// keys reads the SMC's keys. The connection lasts no longer.
func keys(set *keySet) ([]capture.Key, error) {
	k, err := loadKit()
	if err != nil {
		return nil, err
	}
	connection, err := k.connect()
	if err != nil {
		return nil, err
	}
	defer k.close(connection)
	return set.read(func(question *message) (message, error) {
		var answer message
		size := uint64(messageSize)
		if code := k.call(connection, smcSelector, question, messageSize, &answer, &size); code != 0 {
			return message{}, fmt.Errorf("IOConnectCallStructMethod returned %#x", uint32(code))
		}
		return answer, nil
	})
}

// connect opens the endpoint, else the first entry of the class.
func (k *kit) connect() (uint32, error) {
	err := errors.New("there is no service " + smcClass)
	for _, isEndpoint := range []bool{true, false} {
		var connection uint32
		walked := k.each(smcClass, func(entry uint32) bool {
			if isEndpoint && k.name(entry) != smcEndpoint {
				return true
			}
			if code := k.open(entry, k.taskSelf(), 0, &connection); code != 0 {
				connection = 0
				err = fmt.Errorf("IOServiceOpen(%s) returned %#x", smcClass, uint32(code))
			}
			return false
		})
		switch {
		case walked != nil:
			return 0, walked
		case connection != 0:
			return connection, nil
		}
	}
	return 0, err
}
