//go:build !race

package kernel

import "golang.org/x/sys/cpu"

// variants lists what this machine can run, the best last.
//
// AVX-512 is only taken from processors that also have VBMI2 (Ice Lake, Zen 4 and later):
// older ones lower their clock for it, which the training pays.
func variants() []*variant {
	all := []*variant{{name: "generic"}}
	x := &cpu.X86
	if x.HasAVX2 && x.HasF16C {
		all = append(all, &variant{"avx2", avx2Call})
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VBMI2 {
		all = append(all, &variant{"avx512", avx512Call})
	}
	return all
}

//go:noescape
func avx2Call(kernel int, dst, a, b *byte, n int, factor float64) (done int)

//go:noescape
func avx512Call(kernel int, dst, a, b *byte, n int, factor float64) (done int)
