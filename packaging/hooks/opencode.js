// Reports opencode's status to Corral: this plugin passes each relevant event to corralctl report.
// It does nothing outside of a Corral session.
import { spawn } from "node:child_process"

const reported = new Set([
  "session.created", "session.status", "session.idle", "session.error",
  "permission.asked", "permission.replied", "question.asked", "question.replied",
])

const report = (event) => new Promise((resolve) => {
  const corralctl = spawn("corralctl", ["report", "--from", "opencode"], { stdio: ["pipe", "ignore", "ignore"] })
  corralctl.on("error", resolve)
  corralctl.on("close", resolve)
  corralctl.stdin.on("error", () => {})
  corralctl.stdin.end(JSON.stringify(event))
})

export const Corral = async () => {
  const children = new Set() // conversations with subagents
  let last = Promise.resolve()
  return {
    // With an account, XDG_DATA_HOME is that of opencode alone: the programs that it runs get the usual one.
    "shell.env": async (_, output) => {
      if (process.env.CORRAL_DATA_HOME) output.env.XDG_DATA_HOME = process.env.CORRAL_DATA_HOME
    },
    event: async ({ event }) => {
      if (!reported.has(event.type) || !process.env.CORRAL_SESSION) return
      const properties = { ...event.properties }
      if (properties.info?.parentID) children.add(properties.info.id)
      if (children.has(properties.sessionID ?? properties.info?.id)) {
        if (event.type.startsWith("session.")) return // the end of a subagent is not the end of the agent
        delete properties.sessionID // but the user has to answer its questions
      }
      last = last.then(() => report({ type: event.type, properties })) // in order
    },
  }
}
