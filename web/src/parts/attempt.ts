/** Do something that may be refused, and say what came of it. */
import { asProblem } from "../api/problem";
import { askAgain } from "../live/query";
import { toast } from "./toast";

/** Whether it was done; `again` are the paths whose answers are asked for anew, whatever came of it. */
export async function attempt(act: () => Promise<unknown>, again: readonly string[], done?: string): Promise<boolean> {
  try {
    await act();
    if (done !== undefined) toast(done);
    return true;
  } catch (error) {
    const problem = asProblem(error);
    toast(`${problem.message} ${problem.hint}`, { bad: true });
    return false;
  } finally {
    void askAgain(again);
  }
}
