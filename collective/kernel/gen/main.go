// Command gen writes the assembly of package kernel: every kernel of one
// instruction set. Run it with go generate in collective/kernel.
//
// A kernel is a loop (loop.go) around what is done to one vector: load (format.go),
// combine (operation.go), store. Where AVX2 and AVX-512 need different instructions
// for the same thing, type isa (isa.go) hides it, so both come from one description.
package main

import (
	"flag"
	"log"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	name := flag.String("isa", "", "AVX2 or AVX512")
	flag.Parse()
	i, ok := isas[*name]
	if !ok {
		log.Fatalf("unknown instruction set %q", *name)
	}
	ConstraintExpr("!race")
	for _, t := range numbers {
		for _, o := range t.operations {
			i.combine(t.name+o.name, t.format, t.format, t.format, o)
		}
	}
	for _, f := range []format{float16, bfloat16, single} {
		i.scale(f, VMULPS)
	}
	i.scale(double, VMULPD)
	for _, f := range []format{float16, bfloat16} {
		i.convert(f.name+"Narrow", f, single)
		i.convert(f.name+"Widen", single, f)
		for _, o := range singles {
			i.combine(f.name+"Widen"+o.name, single, single, f, o)
		}
	}
	i.stream()
	Generate()
}
