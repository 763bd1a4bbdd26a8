// Copyright The wandbsys Authors
// SPDX-License-Identifier: Apache-2.0

package nvidia

import "fmt"

// code is NVML's return code. NVML's own texts are never asked for: they live in
// the library, and an old one lacks the call.
type code int

const (
	codeSuccess          code = 0
	codeUninitialized    code = 1
	codeInvalidArgument  code = 2
	codeNotSupported     code = 3
	codeNoPermission     code = 4
	codeNotFound         code = 6
	codeDriverNotLoaded  code = 9
	codeTimeout          code = 10
	codeLibraryNotFound  code = 12
	codeFunctionNotFound code = 13
	codeCorruptedInfoROM code = 14
	codeGPUIsLost        code = 15
	codeResetRequired    code = 16
	codeVersionMismatch  code = 18
	codeNoData           code = 21
	codeArgumentVersion  code = 25
	codeDeprecated       code = 26
	codeNotReady         code = 27
	codeGPUNotFound      code = 28
	codeUnknown          code = 999
	// codeOver is ours: the time for calls is over.
	codeOver code = -1
)

var codeNames = map[code]string{
	0: "SUCCESS", 1: "UNINITIALIZED", 2: "INVALID_ARGUMENT", 3: "NOT_SUPPORTED", 4: "NO_PERMISSION",
	5: "ALREADY_INITIALIZED", 6: "NOT_FOUND", 7: "INSUFFICIENT_SIZE", 8: "INSUFFICIENT_POWER",
	9: "DRIVER_NOT_LOADED", 10: "TIMEOUT", 11: "IRQ_ISSUE", 12: "LIBRARY_NOT_FOUND", 13: "FUNCTION_NOT_FOUND",
	14: "CORRUPTED_INFOROM", 15: "GPU_IS_LOST", 16: "RESET_REQUIRED", 17: "OPERATING_SYSTEM",
	18: "LIB_RM_VERSION_MISMATCH", 19: "IN_USE", 20: "MEMORY", 21: "NO_DATA", 22: "VGPU_ECC_NOT_SUPPORTED",
	23: "INSUFFICIENT_RESOURCES", 24: "FREQ_NOT_SUPPORTED", 25: "ARGUMENT_VERSION_MISMATCH", 26: "DEPRECATED",
	27: "NOT_READY", 28: "GPU_NOT_FOUND", 29: "INVALID_STATE", 30: "RESET_TYPE_NOT_SUPPORTED", 999: "UNKNOWN",
}

// Error implements error.
func (c code) Error() string {
	if name, ok := codeNames[c]; ok {
		return fmt.Sprintf("%s (%d)", name, int(c))
	}
	return fmt.Sprintf("code %d", int(c))
}

// isAbsent tells the codes by which NVML says that a figure does not exist here,
// or not now: nothing is wrong.
func (c code) isAbsent() bool {
	switch c {
	case codeNotSupported, codeNoPermission, codeNotFound, codeFunctionNotFound, codeInvalidArgument,
		codeNoData, codeNotReady, codeArgumentVersion, codeDeprecated, codeCorruptedInfoROM, codeOver:
		return true
	}
	return false
}

// isGlobal tells the codes after which the library has to be opened anew.
func (c code) isGlobal() bool {
	switch c {
	case codeUninitialized, codeDriverNotLoaded, codeVersionMismatch, codeGPUNotFound:
		return true
	}
	return false
}

// isLost tells the codes after which a device answers nothing any more.
func (c code) isLost() bool {
	switch c {
	case codeGPUIsLost, codeResetRequired, codeGPUNotFound:
		return true
	}
	return false
}
