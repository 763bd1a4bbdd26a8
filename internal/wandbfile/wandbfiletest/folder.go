// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package wandbfiletest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const extension = ".wandb"

var folderName = regexp.MustCompile(`^(?:offline-)?run-(\d{8}_\d{6})-(` + idForm + `)$`)

// Runs returns the paths of the runs' files in a W&B directory, in the order of their
// folders' names. Whatever is named like a run's folder must be one and have just the file
// that goes with its name; the error is fs.ErrNotExist where the file is missing, as it is
// for a moment in a new folder.
func Runs(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("listing a W&B directory: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "run-") && !strings.HasPrefix(e.Name(), "offline-run-") {
			continue
		}
		if !e.IsDir() {
			return nil, fmt.Errorf("%s in %s is not a folder", e.Name(), directory)
		}
		path, err := runFile(filepath.Join(directory, e.Name()))
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// runFile returns the path of the only transaction log in a run's folder.
func runFile(folder string) (string, error) {
	id, err := folderID(filepath.Base(folder))
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", fmt.Errorf("listing a run's folder: %w", err)
	}
	want, found := "run-"+id+extension, false
	for _, e := range entries {
		if filepath.Ext(e.Name()) != extension {
			continue
		}
		if e.Name() != want || !e.Type().IsRegular() {
			return "", fmt.Errorf("%s (%s) does not belong into %s", e.Name(), e.Type(), folder)
		}
		found = true
	}
	path := filepath.Join(folder, want)
	if !found {
		return "", &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
	}
	return path, nil
}

// folderID returns the run's id of a folder's name.
func folderID(name string) (string, error) {
	parts := folderName.FindStringSubmatch(name)
	if parts == nil {
		return "", fmt.Errorf("%q is not the name of a run's folder", name)
	}
	if _, err := time.Parse("20060102_150405", parts[1]); err != nil {
		return "", fmt.Errorf("the time of folder %q: %w", name, err)
	}
	return parts[2], nil
}

// CheckFolder compares the three places that have a run's id: the name of a transaction
// log, that of its folder, and the run record.
func CheckFolder(path string) error {
	want, err := runFile(filepath.Dir(path))
	if err != nil {
		return err
	}
	if filepath.Base(path) != filepath.Base(want) {
		return fmt.Errorf("%s: the folder is that of %s", path, filepath.Base(want))
	}
	f, err := ReadFile(path)
	if err != nil {
		return err
	}
	return checkID(path, f)
}

// ReadRuns reads the runs of a W&B directory, in the order of [Runs]. Of each, folder and
// file are checked as [CheckFolder] does; one that ends within a record is no error.
func ReadRuns(directory string) ([]*File, error) {
	paths, err := Runs(directory)
	if err != nil {
		return nil, err
	}
	var files []*File
	for _, path := range paths {
		f, err := ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := checkID(path, f); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// checkID compares the id in a log's name with that of the run record.
func checkID(path string, f *File) error {
	if len(f.Records) < 2 {
		return fmt.Errorf("%s: no run record", path)
	}
	if id := f.Records[1].Run.ID; filepath.Base(path) != "run-"+id+extension {
		return fmt.Errorf("%s: the run record has the id %q", path, id)
	}
	return nil
}
