package figures

import (
	"fmt"
	"testing"
)

func fleet(values ...float64) (all []GPU) {
	for i, v := range values {
		all = append(all, GPU{ID: fmt.Sprint("GPU-", i), Model: "H100", MatmulTFLOPS: v, HostToDeviceGB: v / 10})
	}
	return all
}

func TestUnfit(t *testing.T) {
	for name, c := range map[string]struct {
		gpu    GPU
		others []GPU
		want   string
	}{
		"as others":         {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 640}, fleet(650, 655, 660), ""},
		"slow":              {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 412}, fleet(650, 655, 660, 655), "slow: matrix product 412 TFLOP/s (median of 4 others 655)"},
		"at the band":       {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 524}, fleet(650, 655, 660), ""},
		"below the band":    {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 523}, fleet(650, 655, 660), "slow: matrix product 523 TFLOP/s (median of 3 others 655)"},
		"most are as slow":  {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 300}, fleet(300, 300, 650, 650), ""},
		"two others":        {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 412}, fleet(650, 655), ""},
		"another model":     {GPU{ID: "x", Model: "A100", MatmulTFLOPS: 250}, fleet(650, 655, 660), ""},
		"no model":          {GPU{ID: "x", MatmulTFLOPS: 250}, []GPU{{ID: "a", MatmulTFLOPS: 600}, {ID: "b", MatmulTFLOPS: 600}, {ID: "c", MatmulTFLOPS: 600}}, ""},
		"itself":            {GPU{ID: "GPU-0", Model: "H100", MatmulTFLOPS: 412}, fleet(412, 655, 660), ""},
		"not measured":      {GPU{ID: "x", Model: "H100"}, fleet(650, 655, 660), ""},
		"one of them bad":   {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 640}, fleet(1, 655, 660), ""},
		"a failure":         {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 650, Failure: "wrong results"}, nil, "wrong results"},
		"others that fail":  {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 412}, []GPU{{ID: "a", Model: "H100", MatmulTFLOPS: 650, Failure: "ecc"}, {ID: "b", Model: "H100", MatmulTFLOPS: 650}, {ID: "c", Model: "H100", MatmulTFLOPS: 650}}, ""},
		"another type":      {GPU{ID: "x", Model: "H100", MatmulTFLOPS: 412, MatmulType: "float16"}, fleet(650, 655, 660), ""},
		"a socket away":     {GPU{ID: "x", Model: "H100", HostToDeviceGB: 41}, fleet(650, 655, 660), ""},
		"half of the lanes": {GPU{ID: "x", Model: "H100", HostToDeviceGB: 32}, fleet(650, 655, 660), "slow: host to device 32 GB/s (median of 3 others 65.5)"},
	} {
		if got := c.gpu.Unfit(c.others); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestCompared(t *testing.T) {
	all := GPU{ID: "x", Model: "H100", MatmulTFLOPS: 640}.Compare(fleet(650, 660, 670, 700))
	if len(all) != len(speeds) || all[0] != (Compared{Name: "matrix product", Unit: "TFLOP/s", Value: 640, Median: 660, Others: 4}) {
		t.Errorf("%+v", all)
	}
	if text := all[1].String(); text != "memory unknown" {
		t.Error(text)
	}
}
