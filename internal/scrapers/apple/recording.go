// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package apple

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"go.uber.org/zap"

	"github.com/wandbsys/otelcol-wandbsys/internal/guard"
	"github.com/wandbsys/otelcol-wandbsys/internal/scrapers/apple/capture"
)

// recording writes the file of a capture once there were two looks.
type recording struct {
	path string
	// limit is the configured limit of the GPU's power.
	limit  float64
	logger *zap.Logger

	first *capture.Capture
	done  bool
	slot  guard.Slot
}

// add takes a look. What it has is not changed.
func (r *recording) add(ctx context.Context, c *capture.Capture) error {
	if r.done {
		return nil
	}
	if r.first == nil {
		r.first = c
		return nil
	}
	both := *c
	both.Report.Samples = slices.Concat(r.first.Report.Samples, c.Report.Samples)
	if r.limit > 0 {
		both.Config = &capture.Config{GPUPowerLimitWatts: r.limit}
	}
	content, err := both.Content()
	if err != nil {
		return err
	}
	_, err = guard.Call(ctx, &r.slot, func(context.Context) (struct{}, error) {
		return struct{}{}, writeNew(r.path, content)
	})
	switch {
	case errors.Is(err, fs.ErrExist):
		r.logger.Warn("No capture is recorded: the file exists already", zap.String("capture_file", r.path))
	case err != nil:
		return err
	default:
		r.logger.Info("A capture was recorded; capture_file is not needed any more", zap.String("capture_file", r.path))
	}
	r.done, r.first = true, nil
	return nil
}

// writeNew writes a file that was not there, or leaves none.
func writeNew(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the path is configured
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing a capture: %w", errors.Join(err, os.Remove(path))) //nolint:gosec // as above
	}
	return nil
}
