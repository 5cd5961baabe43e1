package statesync

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestFinalCommitIsSentHoweverLongItTakes: the members may train for long before they leave their
// generation.
func TestFinalCommitIsSentHoweverLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestReplica()
		r.Tensors.Add("tensor", "uint8", make([]byte, 100))
		r.Commit(testMeta(1), 1, 1)
		server, client := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			NewServer(r, nil, nil).Serve(t.Context(), server)
			_ = server.Close()
		}()
		layout := Digest{1}
		request := append([]byte{1}, layout[:]...)
		request = append(request, make([]byte, len(chunkHash{}))...)
		if err := writeMessage(client, requestState, request); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ioTimeout)
		r.Store().EndGeneration()
		if response, _, err := readMessage(client, maxMeta); err != nil || response != responseYes {
			t.Errorf("response %d, %v", response, err)
		}
		_ = client.Close()
		<-served
	})
}
