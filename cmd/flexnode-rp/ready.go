package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/Azure/AKSFlexNode/internal/rp/store"
)

func ready() *cobra.Command {
	patience := 20 * time.Second
	cmd := &cobra.Command{
		Use: "ready URL", Short: "Check whether a provider answers and accepts writes",
		Args: cobra.ExactArgs(1),
		Long: `Query /readyz and /readyz/write below a URL, such as http://127.0.0.1:9447
(metricsAddress), until both succeed or the timeout expires. It needs no settings, so
it can run elsewhere, as in the chart's test.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			base, err := url.Parse(args[0])
			if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
				return fmt.Errorf("cannot query %q: it is not an http or https URL", args[0])
			}
			base.Path += "/" // JoinPath would return a relative path for an empty one
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			// A replica that does not answer may have gone, and another one taken its place.
			client := &http.Client{Timeout: max(patience/4, time.Second)}
			for _, path := range []string{"readyz", "readyz/write"} {
				at := base.JoinPath(path)
				if err := untilReady(ctx, client, at); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), at, "ok")
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&patience, "timeout", patience, "how long to wait")
	return cmd
}

// untilReady requests a URL every second until it succeeds or ctx ends; then it returns the last
// error.
func untilReady(ctx context.Context, client *http.Client, at *url.URL) (last error) {
	for {
		err := askReady(ctx, client, at)
		// An attempt that ctx has ended is no answer.
		if last == nil || ctx.Err() == nil || err == nil {
			last = err
		}
		if err == nil || !store.Pause(ctx, time.Second) {
			return last
		}
	}
}

func askReady(ctx context.Context, client *http.Client, at *url.URL) error {
	answer, err := client.Do((&http.Request{Method: http.MethodGet, URL: at}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("cannot check whether the provider is ready: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	err = errors.Join(err, answer.Body.Close())
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("not ready: %s answered %d: %s", at, answer.StatusCode,
			strings.TrimSpace(string(text)))
	}
	return err
}
