package host

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// The files of a data folder that this package owns.
const (
	databaseName = "wp-durable.db"
	tokenName    = "token"
	serverName   = "server.json"
)

// ServerFile says where the server of a data folder is reached.
type ServerFile struct {
	Addr string `json:"addr"` // host:port, one that a client of this machine can use
	PID  int    `json:"pid"`
	// Key is new at each start. Who proves to know it is the server that wrote
	// the file, not a program that has its port since it died.
	Key []byte `json:"key"`
}

// ReadServerFile returns what a server of the data folder wrote. It is stale
// when that server was killed.
func ReadServerFile(dataDir string) (*ServerFile, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, serverName))
	if err != nil {
		return nil, err
	}
	var f ServerFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", serverName, err)
	}
	return &f, nil
}

// newServerKey returns a new [ServerFile].Key.
func newServerKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

func writeServerFile(dataDir string, f ServerFile) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dataDir, serverName), append(b, '\n'), 0o600)
}

// ReadToken returns the token of a data folder, or an error of fs.ErrNotExist.
func ReadToken(dataDir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, tokenName))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < secrets.MinLength {
		return "", fmt.Errorf("%s: a token has at least %d bytes", filepath.Join(dataDir, tokenName), secrets.MinLength)
	}
	return token, nil
}

// keepToken returns the data folder's token, making it when there is none.
func keepToken(dataDir string) (token string, made bool, err error) {
	token, err = ReadToken(dataDir)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, false, err
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	token = base64.RawURLEncoding.EncodeToString(random[:])
	if err := renameio.WriteFile(filepath.Join(dataDir, tokenName), []byte(token+"\n"), 0o600); err != nil {
		return "", false, fmt.Errorf("keep token: %w", err)
	}
	return token, true, nil
}

// makeDataDir makes the data folder and returns its absolute path.
func makeDataDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return abs, nil
}
