package metadata

// Funcs saves and restores a value of the program by functions, as elastic.Handler says.
type Funcs struct {
	Saves    func() ([]byte, error)
	Restores func(saved []byte) error
}

// Save calls Saves.
func (f Funcs) Save() ([]byte, error) { return f.Saves() }

// Restore calls Restores.
func (f Funcs) Restore(saved []byte) error { return f.Restores(saved) }
