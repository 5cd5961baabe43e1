package tables

// Ledger counts the samples that a job's committed steps have consumed.
type Ledger struct {
	Samples uint64        `json:"samples"`               // size of one epoch; 0 = the program keeps no ledger
	Epochs  []LedgerEpoch `json:"epochs" bound:"epochs"` // finished and current epochs in order
}

// LedgerEpoch is the ledger of one epoch.
type LedgerEpoch struct {
	Epoch uint64 `json:"epoch"`
	Count uint64 `json:"count"`      // samples consumed by committed steps
	Sum   uint64 `json:"sum,string"` // sum modulo 2^64 of SampleHash(index) over them
	Done  bool   `json:"done"`       // the epoch was closed by the program
}

// SampleHash is the hash of a sample index that ledgers sum (the finaliser of splitmix64, Steele et
// al. 2014).
func SampleHash(index uint64) uint64 {
	z := index + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
