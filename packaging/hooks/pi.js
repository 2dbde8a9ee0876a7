// Reports to Corral which conversation Pi has begun or continued: another one than at its start
// after /new, /resume and /fork. It does nothing outside of a Corral session.
import { spawn } from "node:child_process"

export default function (pi) {
  pi.on("session_start", (_event, ctx) => {
    if (!process.env.CORRAL_SESSION) return
    const id = ctx.sessionManager.getSessionId()
    spawn("corralctl", ["report", "idle", "--resume-id", id], { stdio: "ignore" }).on("error", () => {})
  })
}
