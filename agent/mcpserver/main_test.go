package mcpserver

import (
	"testing"

	"github.com/parley-chat/parley/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
