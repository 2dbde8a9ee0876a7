package modelmock

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// writeLimit replies that a usage limit was reached, as the interface at the end of the path does
// for a user with a subscription.
func writeLimit(w http.ResponseWriter, path string, seconds int) {
	reset, header := time.Now().Unix()+int64(seconds), w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Retry-After", strconv.Itoa(seconds))
	for name, value := range map[string]string{
		"used-percent": "100.0", "window-minutes": "300", "reset-at": fmt.Sprint(reset),
	} {
		header.Set("X-Codex-Primary-"+name, value)
	}
	failure := object{
		"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus",
		"resets_at": reset, "resets_in_seconds": seconds,
	}
	switch {
	case strings.HasSuffix(path, "/messages"):
		claim := "five_hour"
		if seconds > 24*60*60 {
			claim = "seven_day"
		}
		for name, value := range map[string]string{
			"status": "rejected", "reset": fmt.Sprint(reset), "representative-claim": claim, "overage-status": "rejected",
			"overage-disabled-reason": "org_level_disabled",
		} {
			header.Set("Anthropic-Ratelimit-Unified-"+name, value)
		}
		header.Set("X-Should-Retry", "false")
		failure = object{"type": "rate_limit_error", "message": "This request would exceed your account's rate limit"}
	case strings.HasSuffix(path, "enerateContent"):
		failure = object{
			"code": http.StatusTooManyRequests, "status": "RESOURCE_EXHAUSTED", "message": "Resource has been exhausted",
			"details": []object{{
				"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": fmt.Sprintf("%ds", seconds),
			}},
		}
	}
	w.WriteHeader(http.StatusTooManyRequests)
	(&writer{w: w}).json(object{"type": "error", "error": failure})
}
