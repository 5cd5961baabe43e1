// Command gen writes the assembly of package kernel: every kernel of one
// instruction set. Run it with go generate in collective/kernel.
//
// A kernel is a loop (loop.go) around what is done to one vector: load (format.go),
// combine (operation.go), store. Where AVX2 and AVX-512 need different instructions
// for the same thing, type isa (isa.go) hides it, so both come from one description.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

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
	var kernels []string // in the order of their numbers
	for _, t := range numbers {
		if len(t.operations) == 2 {
			kernels = append(kernels, "int8Sum", "int8Product") // of uint8 the bits are the same
		}
		for _, o := range t.operations {
			i.combine(t.name+o.name, t.format, t.format, t.format, o)
			kernels = append(kernels, t.name+o.name)
		}
	}
	for _, f := range []format{float16, bfloat16, single} {
		i.scale(f, VMULPS)
		kernels = append(kernels, f.name+"Scale")
	}
	i.scale(double, VMULPD)
	kernels = append(kernels, "float64Scale")
	for _, f := range []format{float16, bfloat16} {
		i.convert(f.name+"Narrow", f, single)
		i.convert(f.name+"Widen", single, f)
		kernels = append(kernels, f.name+"Narrow", f.name+"Widen")
		for _, o := range singles {
			i.combine(f.name+"Widen"+o.name, single, single, f, o)
			kernels = append(kernels, f.name+"Widen"+o.name)
		}
	}
	i.stream()
	i.fixed("fixed", false)
	i.fixed("fixedFirst", true)
	i.largest()
	i.mean()
	Generate()
	if err := i.table(append(kernels, "stream", "fixed", "fixedFirst", "largest", "mean")); err != nil {
		log.Fatal(err)
	}
}

// table appends the function that calls a kernel by its number to the file.
func (i *isa) table(kernels []string) error {
	f, err := os.OpenFile(flag.Lookup("out").Value.String(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for n, name := range kernels {
		fmt.Fprintf(f, "\nDATA ·kernels%s<>+%d(SB)/8, $·%s(SB)", i.name, 8*n, i.symbol(name))
	}
	call := strings.ToLower(i.name)
	fmt.Fprintf(f, "\nGLOBL ·kernels%s<>(SB), RODATA|NOPTR, $%d\n\n", i.name, 8*len(kernels))
	fmt.Fprintf(f, "// func %sCall(kernel int, dst *byte, a *byte, b *byte, n int, factor float64) (done int)\n", call)
	fmt.Fprintf(f, "TEXT ·%sCall(SB), NOSPLIT, $0-56\n", call)
	fmt.Fprintf(f, "\tMOVQ kernel+0(FP), AX\n\tLEAQ ·kernels%s<>(SB), CX\n\tMOVQ (CX)(AX*8), AX\n\tJMP  AX\n", i.name)
	return f.Close()
}

// symbol is the name of a kernel in the file, where alone it is known.
func (i *isa) symbol(name string) string { return name + i.name + "<>" }
