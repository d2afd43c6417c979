package disk

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// verify checks a signature over the 32 bytes of an SHA-256 digest: Ed25519 over them as the message, or ECDSA P-256 in
// ASN.1 over them as the digest. signer is the public key, PEM of SubjectPublicKeyInfo. Neither is no error: whoever asks
// for a signature sends both.
func verify(digest, signature []byte, signer string) error {
	if len(signature) == 0 && signer == "" {
		return nil
	}
	if len(signature) == 0 || signer == "" {
		return errors.New("an image needs both a signature and a signer, or neither")
	}
	key, err := publicKey(signer)
	if err != nil {
		return err
	}
	var ok bool
	switch key := key.(type) {
	case ed25519.PublicKey:
		ok = ed25519.Verify(key, digest, signature)
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return errors.New("the signer's ECDSA key is not on P-256")
		}
		ok = ecdsa.VerifyASN1(key, digest, signature)
	default:
		return fmt.Errorf("the signer's key is a %T; Ed25519 or ECDSA P-256 is needed", key)
	}
	if !ok {
		return errors.New("the signature over the image's digest is not the signer's")
	}
	return nil
}

func publicKey(text string) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the signer is not PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the signer is not a public key (SubjectPublicKeyInfo)")
	}
	return key, nil
}
