package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/azuresim"
)

func serveCommand() *cobra.Command {
	var listen, control, cert, key, world, images string
	var provider providerFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve Entra ID and Azure Resource Manager",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sim := &azuresim.Sim{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			defer sim.Close()
			if world != "" {
				var w azuresim.World
				if err := readJSON(world, &w); err != nil {
					return err
				}
				sim.Load(w)
			}
			if images != "" {
				at, err := url.Parse(images)
				if err != nil {
					return fmt.Errorf("cannot use --images: %w", err)
				}
				sim.Images = httputil.NewSingleHostReverseProxy(at)
			}
			var err error
			if sim.Provider, err = provider.provider(); err != nil {
				return err
			}
			return errors.Join(
				serve(cmd.Context(), server{listen, sim, cert, key},
					server{listen: control, handler: sim.Control()}),
			)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8445", "address to serve on, with TLS")
	cmd.Flags().StringVar(&control, "control", "127.0.0.1:8446",
		"address of the control API, without TLS; keep it on loopback")
	cmd.Flags().StringVar(&cert, "tls-cert", "", "PEM `file` with the certificate")
	cmd.Flags().StringVar(&key, "tls-key", "", "PEM `file` with its key")
	cmd.Flags().StringVar(&world, "world", "",
		"JSON `file` with the subscriptions, identities and clusters of this Azure")
	cmd.Flags().StringVar(&images, "images", "",
		"`URL` of a registry whose images the container registry serves to authorized callers")
	cmd.Flags().StringSliceVar(&provider.urls, "provider", nil,
		"`URL` of a replica of the resource provider that serves flexNodeConfig; may be repeated")
	cmd.Flags().StringVar(&provider.record, "record", "",
		"`file` to record exchanges with the provider in, as lines of JSON with configuration URLs")
	cmd.Flags().StringVar(&provider.ca, "provider-ca", "",
		"PEM `file` with the CA of the provider's certificate")
	cmd.Flags().StringVar(&provider.cert, "provider-cert", "",
		"PEM `file` with the client certificate for the provider")
	cmd.Flags().StringVar(&provider.key, "provider-key", "", "PEM `file` with its key")
	for _, name := range []string{"tls-cert", "tls-key"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic("internal error: " + err.Error())
		}
	}
	return cmd
}

// providerFlags are the replicas of a resource provider, the files for TLS with them, and the file
// that records the exchanges.
type providerFlags struct {
	urls                  []string
	ca, cert, key, record string
}

func (p providerFlags) provider() (*azuresim.Provider, error) {
	if len(p.urls) == 0 {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the provider's client certificate: %w", err)
	}
	text, err := os.ReadFile(p.ca)
	if err != nil {
		return nil, fmt.Errorf("cannot read the provider's CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	var record io.Writer
	if p.record != "" {
		if record, err = os.OpenFile(p.record, os.O_WRONLY|os.O_APPEND|os.O_CREATE,
			0o600); err != nil {
			return nil, fmt.Errorf("cannot open the record: %w", err)
		}
	}
	return &azuresim.Provider{Record: record, URLs: p.urls,
		Client: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool,
				MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: 32,
			DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
		}}}, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	return nil
}

func himdsCommand() *cobra.Command {
	endpoint := ""
	cmd := &cobra.Command{
		Use:   "himds",
		Short: "Serve the metadata service of an Arc machine on 127.0.0.1:40342",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := os.MkdirAll(azuresim.ArcTokens, 0o700); err != nil {
				return fmt.Errorf("cannot make %s: %w", azuresim.ArcTokens, err)
			}
			machine := azuresim.ConnectedMachine{Endpoint: endpoint}
			return serve(cmd.Context(), server{listen: "127.0.0.1:40342",
				handler: &azuresim.ArcMetadata{Identity: machine.Identity}})
		},
	}
	cmd.Flags().StringVar(&endpoint, "endpoint", "", "origin of the simulated Azure")
	return cmd
}

func imdsCommand() *cobra.Command {
	identities, listen := "", ""
	cmd := &cobra.Command{
		Use:   "imds",
		Short: "Serve the metadata service of an Azure VM",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			handler := &azuresim.VMMetadata{}
			if err := readJSON(identities, &handler.Identities); err != nil {
				return err
			}
			return serve(cmd.Context(), server{listen: listen, handler: handler})
		},
	}
	cmd.Flags().StringVar(&identities, "identities", "/etc/azuresim/identities.json",
		"JSON `file` with the VM's managed identities")
	cmd.Flags().StringVar(&listen, "listen", "169.254.169.254:80", "address to serve on")
	return cmd
}

// server is an address to serve on, with TLS if it has a certificate.
type server struct {
	listen    string
	handler   http.Handler
	cert, key string
}

// serve serves until ctx ends or a server fails.
func serve(ctx context.Context, servers ...server) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		listener, err := net.Listen("tcp", s.listen)
		if err != nil {
			return fmt.Errorf("cannot serve: %w", err)
		}
		h := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
		go func() {
			if s.cert != "" {
				failed <- h.ServeTLS(listener, s.cert, s.key)
			} else {
				failed <- h.Serve(listener)
			}
		}()
		defer h.Close()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
