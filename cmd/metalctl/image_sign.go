package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newSignImage(a *app) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use: "sign FILE --key KEYFILE", Short: "Sign an image, without a control plane", Args: cobra.ExactArgs(1),
		Long: withExits(`Signs the SHA-256 of a file and prints the signature in base64. It asks nobody: the key can stay on a machine without a
network. The key is Ed25519, or ECDSA on P-256, in PEM (PKCS #8), as metalctl image keygen or openssl genpkey make it.`, localExits),
		Example: "  metalctl image sign u.raw.zst --key release.key",
		RunE: func(_ *cobra.Command, args []string) error {
			if key == "" {
				return usage("--key is needed")
			}
			signer, err := readSigner(key)
			if err != nil {
				return err
			}
			sum, _, err := hashFile(args[0])
			if err != nil {
				return err
			}
			signature, err := signDigest(signer, sum)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, base64.StdEncoding.EncodeToString(signature))
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file with the private key (needed)")
	return cmd
}

// hashFile takes the SHA-256 and the size of a file.
func hashFile(name string) ([]byte, int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, usage("%s", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return nil, 0, usage("%s", err)
	}
	return h.Sum(nil), size, nil
}

// digestText is a digest as the catalog has it.
func digestText(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// readSigner reads a private key. No error repeats what the file holds.
func readSigner(name string) (crypto.Signer, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, usage("%s", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, usage("%s holds no private key in PEM (PKCS #8)", name)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, usage("%s holds no private key that can be read", name)
	}
	switch key := key.(type) {
	case ed25519.PrivateKey:
		return key, nil
	case *ecdsa.PrivateKey:
		if key.Curve == elliptic.P256() {
			return key, nil
		}
	}
	return nil, usage("the key in %s is neither Ed25519 nor ECDSA on P-256", name)
}

// signDigest signs as image.Verify checks: Ed25519 has the digest as its message, ECDSA as its digest.
func signDigest(key crypto.Signer, sum []byte) ([]byte, error) {
	how := crypto.Hash(0)
	if _, curve := key.(*ecdsa.PrivateKey); curve {
		how = crypto.SHA256
	}
	signature, err := key.Sign(rand.Reader, sum, how)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return signature, nil
}

func newKeygen(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "keygen --out FILE", Short: "Make a key pair to sign images with", Args: cobra.NoArgs,
		Long: withExits(`Makes an Ed25519 key pair: the private key in FILE, mode 0600, the public one in FILE.pub, for metalctl set-policy tenant
--image-signer. A file that exists is not overwritten. It asks nobody.`, localExits),
		Example: "  metalctl image keygen --out release.key",
		RunE: func(*cobra.Command, []string) error {
			if out == "" {
				return usage("--out is needed")
			}
			if err := makeKeys(out); err != nil {
				return err
			}
			a.say("the private key is in %s, the public one in %s.pub", out, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file for the private key (needed)")
	return cmd
}

func makeKeys(out string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	open, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	if _, err := os.Lstat(out + ".pub"); !errors.Is(err, os.ErrNotExist) {
		return usage("%s.pub exists already", out)
	}
	if err := writeNew(out, 0o600, "PRIVATE KEY", secret); err != nil {
		return err
	}
	return writeNew(out+".pub", 0o644, "PUBLIC KEY", open)
}

// writeNew writes PEM to a file that is not there yet.
func writeNew(name string, mode os.FileMode, what string, der []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return usage("%s exists already", name)
	}
	if err != nil {
		return usage("%s", err)
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: what, Bytes: der}), f.Close())
}
