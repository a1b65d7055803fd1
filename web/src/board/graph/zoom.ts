/** Coming closer to a part of the map: by wheel, by two fingers, by keys, by buttons; and moving it about. */
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomBehavior, type ZoomTransform } from "d3-zoom";
import { type RefObject, useEffect, useRef, useState } from "react";

import type { Box, Point } from "./layout";

const CLOSEST = 8;
const STEP = 1.5;

export interface Zoom {
  transform: ZoomTransform;
  /** How much of the drawing's own measure a pixel of the screen is. */
  unit: number;
  closer: () => void;
  farther: () => void;
  fit: () => void;
  /** Move it so that a place is in the middle, unless all is in sight. */
  show: (at: Point) => void;
}

export function useZoom(drawing: RefObject<SVGSVGElement | null>, { x, y, width, height }: Box): Zoom {
  const [transform, setTransform] = useState<ZoomTransform>(zoomIdentity);
  const [pixels, setPixels] = useState<number>();
  const behaviour = useRef<ZoomBehavior<SVGSVGElement, unknown>>(undefined);

  useEffect(() => {
    const svg = drawing.current;
    if (svg === null) return;
    const whole: [[number, number], [number, number]] = [
      [x, y],
      [x + width, y + height],
    ];
    behaviour.current = zoom<SVGSVGElement, unknown>()
      .extent(whole)
      .translateExtent(whole)
      .scaleExtent([1, CLOSEST])
      .on("zoom", (event: { transform: ZoomTransform }) => setTransform(event.transform));
    select(svg).call(behaviour.current);
    const sized = new ResizeObserver(() => setPixels(Math.min(svg.clientWidth / width, svg.clientHeight / height)));
    sized.observe(svg);
    return () => {
      sized.disconnect();
      select(svg).on(".zoom", null);
    };
  }, [drawing, x, y, width, height]);

  function act(what: (of: ZoomBehavior<SVGSVGElement, unknown>, svg: SVGSVGElement) => void): void {
    if (behaviour.current !== undefined && drawing.current !== null) what(behaviour.current, drawing.current);
  }

  return {
    transform,
    unit: 1 / ((pixels ?? 1) * transform.k),
    closer: () => act((of, svg) => of.scaleBy(select(svg), STEP)),
    farther: () => act((of, svg) => of.scaleBy(select(svg), 1 / STEP)),
    fit: () => act((of, svg) => of.transform(select(svg), zoomIdentity)),
    show: (at) => {
      if (transform.k > 1) act((of, svg) => of.translateTo(select(svg), at.x, at.y));
    },
  };
}
