//go:build linux && !noserver

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// maxResident is the memory that a command of an agent may take at its peak, in KiB, whatever the server sends.
const maxResident = 192 << 10

// peakFile names the variable with the file into which a command writes the memory that it took at its peak, in KiB. The system's own
// record of it would include that of the process that started the command.
const peakFile = "PARLEY_TEST_PEAK"

func init() {
	if file := os.Getenv(peakFile); file != "" {
		recordPeak(file)
		go func() {
			for {
				time.Sleep(5 * time.Millisecond)
				recordPeak(file)
			}
		}()
	}
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func recordPeak(file string) {
	status, _ := os.ReadFile("/proc/self/status")
	if found := peakLine.FindSubmatch(status); found != nil {
		_ = os.WriteFile(file+".new", found[1], 0o600)
		_ = os.Rename(file+".new", file)
	}
}

// repeated writes a text until n bytes are written.
func repeated(w io.Writer, text string, n int) {
	chunk := strings.Repeat(text, 1+(64<<10)/len(text))
	for written := 0; written < n; written += len(chunk) {
		if _, err := io.WriteString(w, chunk); err != nil {
			return // the program has enough
		}
	}
}

// hugeResponses are what a server that lies may send to use the memory of a program.
var hugeResponses = map[string]func(w http.ResponseWriter){
	"a page of 60 MiB": func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"messages":[`)
		repeated(w, `{"message_id":"msg_1","content":"`+strings.Repeat("x", 1000)+`"},`, 60<<20)
		_, _ = io.WriteString(w, `{}],"total_unread":1}`)
	},
	"the longest page of small values": func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"messages":[`)
		repeated(w, `{},`, client.MaxResponse-(1<<20))
		_, _ = io.WriteString(w, `{}],"total_unread":1}`)
	},
	"half a GiB, compressed": func(w http.ResponseWriter) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb())
	},
	"lists in lists": func(w http.ResponseWriter) { repeated(w, "[", 60<<20) },
	"an error of 60 MiB": func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusForbidden)
		repeated(w, `{"code":"x"}`, 60<<20)
	},
	"headers of 9 MiB": func(w http.ResponseWriter) {
		for range 9 {
			w.Header().Add("X-Long", strings.Repeat("x", 1<<20))
		}
		_, _ = io.WriteString(w, `{}`)
	},
}

// bomb is half a GiB of spaces, compressed.
var bomb = sync.OnceValue(func() []byte {
	var compressed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
	repeated(writer, " ", 1<<29)
	_ = writer.Close()
	return compressed.Bytes()
})

// TestHugeResponses: a server that lies cannot use up the memory of a program, and the next command works.
func TestHugeResponses(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	server := newLiar(t)
	accounts := 0
	for name, tell := range hugeResponses {
		accounts++
		alice := newAgent(t, server.URL, fmt.Sprint("user_", accounts))
		server.tell("", tell)
		inbox, peak := alice.command("inbox"), filepath.Join(t.TempDir(), "peak")
		inbox.Env = append(inbox.Env, peakFile+"="+peak)
		out, _ := inbox.CombinedOutput()
		server.tell("", nil)
		recorded, err := os.ReadFile(peak)
		testkit.NoError(t, err)
		t.Logf("%s: %s KiB", name, recorded)
		if taken, err := strconv.Atoi(string(recorded)); err != nil || taken > maxResident {
			t.Errorf("%s: the program takes %d KiB, want at most %d (%v)\n%.300s", name, taken, maxResident, err, out)
		}
		alice.run("inbox")
		if got := alice.run("status"); len(got["open"].([]any)) != 0 {
			t.Errorf("%s: %v stays open", name, got)
		}
	}
}
