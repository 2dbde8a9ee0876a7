// Package failpoint names the steps at which a test can have the daemon end, as if it had been
// killed right there.
//
//	failpoint.Hit("start.scope-started")
//
// A build for tests, with the tag failpoints, reads CORRAL_FAILPOINT=NAME[:N]: the process kills
// itself with SIGKILL when it comes to the point NAME for the Nth time, the first if there is no N.
// With CORRAL_FAILSTOP it stops itself by SIGSTOP instead. In any other build Hit is nothing.
package failpoint
