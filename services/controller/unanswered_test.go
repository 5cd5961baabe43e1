package controller_test

import (
	"context"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// doubtful is a bucket whose first save is stored, but neither the save nor the next load is
// answered.
type doubtful struct {
	real  broker.Bucket
	state int
}

type doubtfulBuckets struct{ *doubtful }

func (d doubtfulBuckets) Bucket(string) broker.Bucket { return d.doubtful }

func (d *doubtful) Delete(ctx context.Context, key string, revision uint64) error {
	return d.real.Delete(ctx, key, revision)
}

func (d *doubtful) Watch(ctx context.Context, fn func(string, []byte, uint64), listed func()) error {
	return d.real.Watch(ctx, fn, listed)
}

func (d *doubtful) Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	at, err := d.real.Save(ctx, key, value, revision)
	if d.state == 0 {
		d.state = 1
		return 0, errcode.Errorf(errcode.Unavailable, "no answer")
	}
	return at, err
}

func (d *doubtful) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if d.state == 1 {
		d.state = 2
		return nil, 0, errcode.Errorf(errcode.Unavailable, "no answer")
	}
	return d.real.Load(ctx, key)
}
