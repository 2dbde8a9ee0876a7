// Package failpoint marks the steps at which a test can make the daemon end as if it had been
// killed there.
//
//	failpoint.Hit("start.scope-started")
//
// In a build for tests, with the tag failpoints, the environment variable CORRAL_FAILPOINT=NAME[:N]
// makes the process kill itself with SIGKILL when it reaches the failpoint NAME for the Nth time,
// by default the first. CORRAL_FAILSTOP does the same with SIGSTOP. In any other build, Hit does
// nothing.
package failpoint
