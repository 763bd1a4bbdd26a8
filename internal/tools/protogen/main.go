// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

// Command protogen generates Go code of .proto files as protoc does, but is itself
// written in Go, so that no compiler of another kind must be installed.
// Usage: protogen FOLDER FILE PLUGIN...; the files are written beside FILE, which
// is named relative to FOLDER. A PLUGIN is the path of a protoc-gen-NAME.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: protogen FOLDER FILE PLUGIN...")
	}
	if err := generate(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		log.Fatalf("protogen: %s", err)
	}
}

func generate(folder, file string, plugins []string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments go into the code
	}
	files, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(files[0], map[string]bool{}),
	}
	for _, plugin := range plugins {
		if err := run(plugin, request, folder); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(plugin), err)
		}
	}
	return nil
}

// withImports lists a file after those that it imports.
func withImports(file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return nil
	}
	seen[file.Path()] = true
	var all []*descriptorpb.FileDescriptorProto
	for i := range file.Imports().Len() {
		all = append(all, withImports(file.Imports().Get(i).FileDescriptor, seen)...)
	}
	return append(all, protoutil.ProtoFromFileDescriptor(file))
}

// run asks a plugin for its files, and writes them.
func run(plugin string, request *pluginpb.CodeGeneratorRequest, folder string) error {
	question, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.Command(plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(question), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("%s", answer.GetError())
	}
	for _, f := range answer.File {
		if err := os.WriteFile(filepath.Join(folder, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
