package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
)

// message is a stored message in a file of testdata.
type message struct {
	Subject string              `json:"subject"`
	Header  map[string][]string `json:"header,omitempty"`
	Data    json.RawMessage     `json:"data"`
}

// capture writes what the deployment has stored into a folder: the documents of each bucket as
// they are, the first event of each type, and the newest launch of each job. Its test reads them
// with the code of this tree.
func (d *deployment) capture(ctx context.Context, dir string) error {
	for _, s := range events.Services() {
		if err := d.captureBucket(ctx, s.Bucket, filepath.Join(dir, s.Bucket)); err != nil {
			return err
		}
	}
	if err := d.captureStream(ctx, events.StreamFacts, events.AllFacts, filepath.Join(dir, "events"), func(m events.Stored) (string, error) {
		e, err := cloudevent.Decode(m.Header, m.Data)
		if err != nil {
			return "", err
		}
		return string(e.Body.Type()), nil
	}); err != nil {
		return err
	}
	return d.captureStream(ctx, events.StreamLaunches, events.AllLaunches, filepath.Join(dir, "launches"), func(m events.Stored) (string, error) {
		var l events.Launch
		err := json.Unmarshal(m.Data, &l)
		return string(l.Phase) + "-" + l.Spec.Name, err
	})
}

func (d *deployment) captureBucket(ctx context.Context, bucket, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := map[string][]byte{}
	listed := false
	err := d.client.Ports.Buckets.Bucket(bucket).Watch(ctx, func(key string, value []byte, _ uint64) {
		if value != nil && !listed {
			found[key] = value
		}
	}, func() {
		listed = true
		cancel()
	})
	if !listed {
		return err
	}
	for key, value := range found {
		if err := os.WriteFile(filepath.Join(dir, key), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// captureStream writes the first message of each name.
func (d *deployment) captureStream(ctx context.Context, stream, subject, dir string, name func(events.Stored) (string, error)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listed := false
	err := d.client.Ports.Log.Follow(ctx, events.Follow{Stream: stream, Subjects: []string{subject}, Start: events.FromFirst}, func(m events.Stored) error {
		as, err := name(m)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, strings.TrimPrefix(as, "dev.regroup.")+".json")
		if _, err := os.Stat(file); err == nil {
			return nil
		}
		b, err := json.MarshalIndent(message{Subject: m.Subject, Header: m.Header, Data: m.Data}, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(file, append(b, '\n'), 0o644)
	}, func() {
		listed = true
		cancel()
	})
	if !listed {
		return err
	}
	return nil
}
