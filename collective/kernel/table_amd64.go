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
		all = append(all, &avx2)
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VBMI2 {
		all = append(all, &avx512)
	}
	return all
}

var avx2 = variant{
	name: "avx2",
	combine: [types][ops]func(dst, a, b *byte, n int) int{
		Int8:     {int8SumAVX2, int8ProductAVX2, int8MinAVX2, int8MaxAVX2},
		Uint8:    {int8SumAVX2, int8ProductAVX2, uint8MinAVX2, uint8MaxAVX2},
		Int16:    {int16SumAVX2, int16ProductAVX2, int16MinAVX2, int16MaxAVX2},
		Int32:    {int32SumAVX2, int32ProductAVX2, int32MinAVX2, int32MaxAVX2},
		Int64:    {int64SumAVX2, int64ProductAVX2, int64MinAVX2, int64MaxAVX2},
		Float16:  {float16SumAVX2, float16ProductAVX2, float16MinAVX2, float16MaxAVX2},
		BFloat16: {bfloat16SumAVX2, bfloat16ProductAVX2, bfloat16MinAVX2, bfloat16MaxAVX2},
		Float32:  {float32SumAVX2, float32ProductAVX2, float32MinAVX2, float32MaxAVX2},
		Float64:  {float64SumAVX2, float64ProductAVX2, float64MinAVX2, float64MaxAVX2},
	},
	reduceWiden: [types][ops]func(dst, a, b *byte, n int) int{
		Float16:  {float16WidenSumAVX2, float16WidenProductAVX2, float16WidenMinAVX2, float16WidenMaxAVX2},
		BFloat16: {bfloat16WidenSumAVX2, bfloat16WidenProductAVX2, bfloat16WidenMinAVX2, bfloat16WidenMaxAVX2},
	},
	narrow: [types]func(dst, src *byte, n int) int{Float16: float16NarrowAVX2, BFloat16: bfloat16NarrowAVX2},
	widen:  [types]func(dst, src *byte, n int) int{Float16: float16WidenAVX2, BFloat16: bfloat16WidenAVX2},
	scale: [types]func(dst *byte, n int, factor float64) int{
		Float16: float16ScaleAVX2, BFloat16: bfloat16ScaleAVX2, Float32: float32ScaleAVX2, Float64: float64ScaleAVX2,
	},
	stream: streamAVX2,
}

var avx512 = variant{
	name: "avx512",
	combine: [types][ops]func(dst, a, b *byte, n int) int{
		Int8:     {int8SumAVX512, int8ProductAVX512, int8MinAVX512, int8MaxAVX512},
		Uint8:    {int8SumAVX512, int8ProductAVX512, uint8MinAVX512, uint8MaxAVX512},
		Int16:    {int16SumAVX512, int16ProductAVX512, int16MinAVX512, int16MaxAVX512},
		Int32:    {int32SumAVX512, int32ProductAVX512, int32MinAVX512, int32MaxAVX512},
		Int64:    {int64SumAVX512, int64ProductAVX512, int64MinAVX512, int64MaxAVX512},
		Float16:  {float16SumAVX512, float16ProductAVX512, float16MinAVX512, float16MaxAVX512},
		BFloat16: {bfloat16SumAVX512, bfloat16ProductAVX512, bfloat16MinAVX512, bfloat16MaxAVX512},
		Float32:  {float32SumAVX512, float32ProductAVX512, float32MinAVX512, float32MaxAVX512},
		Float64:  {float64SumAVX512, float64ProductAVX512, float64MinAVX512, float64MaxAVX512},
	},
	reduceWiden: [types][ops]func(dst, a, b *byte, n int) int{
		Float16:  {float16WidenSumAVX512, float16WidenProductAVX512, float16WidenMinAVX512, float16WidenMaxAVX512},
		BFloat16: {bfloat16WidenSumAVX512, bfloat16WidenProductAVX512, bfloat16WidenMinAVX512, bfloat16WidenMaxAVX512},
	},
	narrow: [types]func(dst, src *byte, n int) int{Float16: float16NarrowAVX512, BFloat16: bfloat16NarrowAVX512},
	widen:  [types]func(dst, src *byte, n int) int{Float16: float16WidenAVX512, BFloat16: bfloat16WidenAVX512},
	scale: [types]func(dst *byte, n int, factor float64) int{
		Float16: float16ScaleAVX512, BFloat16: bfloat16ScaleAVX512, Float32: float32ScaleAVX512, Float64: float64ScaleAVX512,
	},
	stream: streamAVX512,
}
